"""What each stage of a pipeline keeps in host memory, in bytes: as expected, and at most.

Every rule was read in TensorFlow's kernels (tensorflow/core/kernels/data) and held against the memory of real
processes (tests/trace/test_tf_data_memory.py, bench/tf_data.py). docs/tf_data.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from oomproof.data.pipeline.buffers import Buffer, Element, Pipeline
from oomproof.data.pipeline.stages import ALIGNED, AUTOTUNE, GIVEN, INFINITE, Assumed, Options, Part, Stage

PREFETCH, PREFETCH_HIGH = 2, 16
"""elements behind prefetch(AUTOTUNE): it begins with one and doubles whenever it was full and is found empty"""
FIRST_PARALLEL = 16
"""calls that AUTOTUNE begins with, if there are as many processors"""
READER = 256 << 10
"""bytes that a reader of records reads at a time"""
_KEEP_STORAGE = {"Repeat", "Take", "Skip", "Shard", "Filter", "Options", "Zip", "Concatenate", "Restructured"}
_KEEP_STORAGE |= {"AssertCardinality", "TakeWhile", "IgnoreErrors", "DirectedInterleave"}
_KEEP_STORAGE |= {"Prefetch", "Shuffle", "ShuffleAndRepeat", "Cache"}
"""stages that hand on the tensors they get"""
_HOLD_NOTHING = {"Range", "Random", "Scan", "ParallelFilter", "Empty", "ParseExample", "Generator", "DenseToRagged"}
_HOLD_NOTHING |= {"TextLine", "FixedLengthRecord", GIVEN, *_KEEP_STORAGE}
"""stages without a price that keep next to nothing; any other is told as not counted"""


def price_pipeline(last: Stage, options: Options, assumed: Assumed) -> Pipeline:
    pricing = _Pricing(options, assumed)
    element = pricing.visit(last)
    end = next(each for each in last.walk() if each.kind != "Options")
    pricing.now = None
    if options.inject_prefetch and end.kind != "Prefetch":
        pricing.hold("prefetch (added by TensorFlow)", PREFETCH, PREFETCH_HIGH, element, "AUTOTUNE")
    pricing.hold("the training loop", 1, 2, element, "the batch that is trained on")
    return Pipeline(
        last,
        tuple(each for each in pricing.buffers if each.expected or each.high or each.shared),
        element,
        tuple(dict.fromkeys(pricing.guesses)),
        tuple(dict.fromkeys(pricing.unknown)),
        options,
        pricing.arrays,
        tuple(pricing.sizes),
    )


_Price = Callable[[Stage, Element, Element, int], Element | None]


class _Pricing:
    """Goes from the sources to the end, and notes what each stage holds."""

    def __init__(self, options: Options, assumed: Assumed) -> None:
        self.options, self.assumed = options, assumed
        self.buffers: list[Buffer] = []
        self.guesses: list[str] = []
        self.unknown: list[str] = []
        self.arrays = 0
        self.now: Stage | None = None
        self.sizes: list[tuple[Stage, Element]] = []

    def visit(self, stage: Stage, times: int = 1) -> Element:
        """Notes what ``stage`` and all before it hold; ``times``: so many of them run side by side."""
        before = [self.visit(each, times) for each in stage.inputs]
        self.now = stage
        first = before[0] if before else Element(0, 0)
        leading = self.find_leading(stage, first)
        shared = stage.kind in _KEEP_STORAGE and bool(before) and all(each.shared for each in before)
        element = self.size_element(stage, leading, shared)
        price: _Price | None = getattr(self, f"_{stage.kind.lower()}", None)
        if price is not None:
            element = price(stage, first, element, times) or element
        elif stage.kind == "Variant":  # made from a graph: its stages are not to be seen; enumerate() counts with one
            if element.bytes > ALIGNED:
                self.unknown.append("tf.data: a part of the pipeline that was made from a graph, and cannot be read")
        elif stage.kind not in _HOLD_NOTHING:
            self.unknown.append(f"tf.data: what {stage.kind} keeps in memory is not known")
        self.sizes.append((stage, element))
        return element

    def find_leading(self, stage: Stage, before: Element) -> tuple[int, ...]:
        batch = stage.settings.get("batch_size")
        if stage.kind in ("Batch", "ParallelBatch", "PaddedBatch") and batch:
            return (batch, *before.leading)
        if stage.kind == "Unbatch":
            return before.leading[1:]
        if stage.kind in ("FlatMap", "Interleave", "ParallelInterleave", "LegacyParallelInterleave"):
            return _inner_leading(stage.inner)
        return before.leading

    def size_element(self, stage: Stage, leading: tuple[int, ...], shared: bool = False) -> Element:
        assumed = self.assumed
        if stage.kind == "TensorSlice" and stage.elements > 0:  # known, even for strings
            each = stage.own // stage.elements
            return Element(each, each, leading, shared)
        low = sum(part.count_bytes(leading, assumed.side, assumed.text) for part in stage.parts)
        high = sum(part.count_bytes(leading, assumed.side_high, assumed.text_high) for part in stage.parts)
        return Element(low, high, leading, shared)

    def hold(
        self, stage: str, count: int, high: int, element: Element, why: str, *, parts: Sequence[Part] = ()
    ) -> None:
        if element.shared:
            self.buffers.append(
                Buffer(stage, count, element.bytes, 0, 0, f"{why}; shares what is kept above", True, self.now)
            )
            return
        self.buffers.append(
            Buffer(stage, count, element.bytes, count * element.bytes, high * element.high, why, of=self.now)
        )
        self.guess(parts, element)

    def guess(self, parts: Sequence[Part], element: Element) -> None:
        for part in parts:
            if part.is_guessed(element.leading):
                self.guesses.append(_describe_guess(part, element.leading, self.assumed))

    def parallel(self, wanted: int) -> tuple[int, int, str]:
        """(expected, at most, why) of a number of parallel calls."""
        if wanted != AUTOTUNE:
            return wanted, wanted, f"{wanted} calls at a time"
        cpus = max(1, self.assumed.cpus)
        return min(FIRST_PARALLEL, cpus), cpus, f"AUTOTUNE, {cpus} processors"

    # One method per kind that holds something. (stage, element before, element after, how many side by side)

    def _shuffle(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        size, there = stage.settings.get("buffer_size", 0), self.count(stage.inputs[0])
        # An UNKNOWN buffer size is the whole data set.
        count = there if size < 0 and there is not None else min(size, there) if there is not None else max(size, 0)
        why = f"buffer of {size}" + (f", the data has {there}" if there is not None and there < size else "")
        self.hold("shuffle", count * times, count * times, before, why, parts=stage.parts)

    _shuffleandrepeat = _shuffle

    def _prefetch(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        size = stage.settings.get("buffer_size", AUTOTUNE)
        if size == AUTOTUNE:
            self.hold("prefetch", PREFETCH * times, PREFETCH_HIGH * times, before, "AUTOTUNE", parts=stage.parts)
        else:
            self.hold("prefetch", size * times, size * times, before, f"{size} elements", parts=stage.parts)

    def _map(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        if self.options.map_parallelization and "stateful" not in stage.facts:
            self._calls("map (made parallel by TensorFlow)", AUTOTUNE, before, after, times)
        else:
            self._calls("map", 1, before, after, times)
        self.guess(stage.parts, after)

    def _parallelmap(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        self._calls("map", stage.settings.get("num_parallel_calls", AUTOTUNE), before, after, times)
        self.guess(stage.parts, after)

    def _calls(self, name: str, wanted: int, before: Element, after: Element, times: int) -> None:
        calls, most, why = self.parallel(wanted)
        whole = Element(after.bytes + (0 if before.shared else before.bytes), 2 * after.high + before.high)
        self.hold(name, calls * times, most * times, whole, f"{why}: what goes in and comes out")

    def _batch(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        size = stage.settings.get("batch_size", 1) * times
        if self.comes_in_parallel(stage.inputs[0]):
            why = "elements that are being put together, and those of the last batch on their way out"
            self.hold("batch", 2 * size, 2 * size, before, why)
        else:
            self.hold("batch", size, size, before, "elements that are being put together")
        self.guess(stage.parts, after)

    _paddedbatch = _batch

    def _parallelbatch(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        calls, most, why = self.parallel(stage.settings.get("num_parallel_calls", AUTOTUNE))
        self.hold("batch", calls * times, most * times, after, f"{why}: finished batches", parts=stage.parts)
        size = stage.settings.get("batch_size", 1)
        self.hold("batch", size * times, most * size * times, before, "elements that are being put together")

    def _cache(self, stage: Stage, before: Element, after: Element, times: int) -> Element | None:
        if "on_disk" in stage.facts:
            self.hold("cache (file)", 1, 2, before, "on its way to the file")
            return None
        there = self.count(stage.inputs[0])
        if there is None:
            self.unknown.append(
                "tf.data: cache() keeps every element in memory, and how many there are is not known; say it with "
                "Assumed(elements=N) or assert_cardinality(N)"
            )
            return None
        self.hold("cache", there, there, before, f"all {there} elements, in memory", parts=stage.parts)
        return Element(after.bytes, after.high, after.leading, shared=True)

    def _tensorslice(self, stage: Stage, before: Element, after: Element, times: int) -> Element:
        why = "whole arrays; a second time where the program keeps its own"
        self.buffers.append(Buffer("from_tensor_slices", 0, after.bytes, stage.own, 2 * stage.own, why))
        self.arrays += stage.own
        aligned = all(part.item and part.count_bytes((), 1, 0) % ALIGNED == 0 for part in stage.parts if part.shape)
        return Element(after.bytes, after.high, after.leading, shared=aligned)

    def _tensor(self, stage: Stage, before: Element, after: Element, times: int) -> Element:
        if stage.own >= ALIGNED:  # from_generator has a number here
            self.buffers.append(Buffer("from_tensors", 0, after.bytes, stage.own, 2 * stage.own, "whole arrays"))
            self.arrays += stage.own
        return Element(after.bytes, after.high, after.leading, shared=True)

    def _tfrecord(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        reads = max(1, self.parallel(stage.settings.get("num_parallel_reads", 1))[0])
        size = max(READER, stage.settings.get("buffer_size", 0))
        count = reads * times
        self.buffers.append(Buffer("records", 0, size, count * size, 2 * count * size, f"{count} files read at a time"))
        self.hold("records", count, 2 * count, after, "a record of each file", parts=stage.parts)

    def _interleave(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        open_files = self.cycle(stage, 1)
        if stage.inner is not None:
            self.visit(stage.inner, open_files * times)

    def _parallelinterleave(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        calls = stage.settings.get("num_parallel_calls", AUTOTUNE)
        cycle, block = self.cycle(stage, calls), max(1, stage.settings.get("block_length", 1))
        ahead, ready = (
            stage.settings.get("prefetch_input_elements", -1),
            stage.settings.get("buffer_output_elements", -1),
        )
        ahead = 2 * cycle if ahead < 0 else ahead
        ready = 2 * block + 1 if ready < 0 else ready
        there = self.count(stage.inputs[0])
        opened = cycle + ahead if there is None else min(cycle + ahead, there)
        why = f"{opened} inputs open, {ready} elements of each"
        self.hold("interleave", opened * ready * times, opened * ready * times, after, why, parts=stage.parts)
        if stage.inner is not None:
            self.visit(stage.inner, opened * times)

    _legacyparallelinterleave = _parallelinterleave

    def _flatmap(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        if "python" in stage.facts:
            why = "the array that becomes a tensor, and at times the one before it"
            self.hold("from_generator", times, 3 * times, after, why, parts=stage.parts)
            self._add_array_before()
        elif stage.inner is not None:
            self.visit(stage.inner, times)

    def _add_array_before(self) -> None:
        """Python lets go of an array when it is next asked for one: of 24 MiB each, 193 or 217 were held by turns."""
        last = self.buffers[-1]
        self.buffers[-1] = replace(last, expected=last.expected + last.expected // 2)

    def _window(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        size = max(0, stage.settings.get("size", 0))
        self.hold("window", size * times, 2 * size * times, before, f"{size} elements")

    def _unbatch(self, stage: Stage, before: Element, after: Element, times: int) -> None:
        self.hold("unbatch", times, 2 * times, before, "a batch that is being taken apart")

    _rebatch = _unbatch

    def comes_in_parallel(self, stage: Stage) -> bool:
        """Whether elements come faster than those of the last batch are freed. Measured: a batch that parallel calls
        feed has twice its elements alive, one that a shuffle or a single call feeds has them once."""
        if stage.kind in ("Take", "Skip", "Repeat", "Options", "Restructured", "AssertCardinality"):
            return self.comes_in_parallel(stage.inputs[0])
        if stage.kind == "Map":
            return self.options.map_parallelization and "stateful" not in stage.facts and self.assumed.cpus > 1
        return stage.kind == "ParallelInterleave" or (
            stage.kind == "ParallelMap" and stage.settings.get("num_parallel_calls") != 1
        )

    def cycle(self, stage: Stage, calls: int) -> int:
        length = stage.settings.get("cycle_length", AUTOTUNE)
        if length == AUTOTUNE:
            cpus = max(1, self.assumed.cpus)
            length = min(calls, cpus) if calls > 0 else -(-cpus // 3)
        there = self.count(stage.inputs[0])
        return length if there is None else min(length, there)

    def count(self, stage: Stage) -> int | None:
        """How many elements the stage gives in one pass; None: endless, or not known."""
        if stage.elements >= 0:
            return stage.elements
        if stage.elements == INFINITE or self.assumed.elements is None:
            return None
        size = stage.settings.get("batch_size")
        upstream = next((each.settings["batch_size"] for each in stage.walk() if "batch_size" in each.settings), size)
        return -(-self.assumed.elements // (upstream or 1))


def _inner_leading(inner: Stage | None) -> tuple[int, ...]:
    if inner is None:
        return ()
    sizes = [each.settings["batch_size"] for each in inner.walk() if "batch_size" in each.settings]
    return tuple(sizes)


def _describe_guess(part: Part, leading: tuple[int, ...], assumed: Assumed) -> str:
    if not part.item:
        return f"strings of unknown length count as {assumed.text >> 10} KiB, at most {assumed.text_high >> 10} KiB"
    shape = "unknown" if part.shape is None else str(tuple(part.shape)).replace("None", "?")
    sides = f"each unknown side counts as {assumed.side}, at most {assumed.side_high}"
    return f"a {part.dtype} tensor of shape {shape}: {sides}"
