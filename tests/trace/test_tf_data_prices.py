"""Prices and warnings of pipelines written by hand as stages: no TensorFlow is needed to say what must come out."""

from __future__ import annotations

from oomproof.data.pipeline.buffers import COPIES, GAPS, GAPS_OF_BATCHES, HEAP, Pipeline
from oomproof.data.pipeline.prices import PREFETCH, PREFETCH_HIGH, price_pipeline
from oomproof.data.pipeline.stages import AUTOTUNE, INFINITE, UNKNOWN, Assumed, Options, Part, Stage, kind_of
from oomproof.data.pipeline.warnings import warnings_of

MIB = 1 << 20
IMAGE = Part((256, 256, 4), "float32", 4)  # 1 MiB
NUMBER = Part((), "int64", 8)
PLAIN = Options(inject_prefetch=False, map_parallelization=False)
ASSUMED = Assumed(cpus=4)


def source(elements: int = 1000) -> Stage:
    return Stage("Range", (NUMBER,), elements=elements)


def after(before: Stage, kind: str, part: Part | None = None, **settings: int) -> Stage:
    parts = before.parts if part is None else (part,)
    return Stage(kind, parts, (before,), settings, before.elements)


def batched(before: Stage, size: int) -> Stage:
    parts = tuple(Part((None, *(part.shape or ())), part.dtype, part.item) for part in before.parts)
    return Stage("Batch", parts, (before,), {"batch_size": size}, -(-before.elements // size))


def images(elements: int = 1000) -> Stage:
    return after(source(elements), "Map", IMAGE)


def price(last: Stage, options: Options = PLAIN, assumed: Assumed = ASSUMED) -> Pipeline:
    return price_pipeline(last, options, assumed)


def held(pipeline: Pipeline, name: str) -> int:
    return sum(each.expected for each in pipeline.buffers if each.stage == name)


def test_a_shuffle_keeps_its_buffer_or_all_the_data() -> None:
    assert held(price(after(images(), "Shuffle", buffer_size=100)), "shuffle") == 100 * MIB
    assert held(price(after(images(50), "Shuffle", buffer_size=100)), "shuffle") == 50 * MIB
    assert held(price(after(images(INFINITE), "Shuffle", buffer_size=100)), "shuffle") == 100 * MIB


def test_the_size_of_a_batch_goes_on_where_tensorflow_does_not_know_it() -> None:
    batches = batched(images(), 8)
    doubled = after(batches, "Map", Part((None, 256, 256, 8), "float32", 4))
    assert price(doubled).element.bytes == 8 * 2 * MIB
    assert held(price(after(batches, "Prefetch", buffer_size=3)), "prefetch") == 3 * 8 * MIB
    again = batched(batches, 2)
    assert price(again).element.bytes == 16 * MIB
    assert price(after(again, "Unbatch", batches.parts[0])).element.bytes == 8 * MIB


def test_what_a_cache_keeps_is_not_paid_twice() -> None:
    cached = after(images(100), "Cache")
    shuffled = price(batched(after(cached, "Shuffle", buffer_size=50), 4))
    assert held(shuffled, "cache") == 100 * MIB
    assert held(shuffled, "shuffle") == held(shuffled, "batch") == 0
    copied = price(after(after(cached, "Map", IMAGE), "Shuffle", buffer_size=50))
    assert held(copied, "shuffle") == 50 * MIB  # a map makes new tensors


def test_a_cache_of_unknown_length_is_told_or_given() -> None:
    cached = after(images(UNKNOWN), "Cache")
    assert any("how many there are is not known" in each for each in price(cached).not_counted)
    given = price(cached, assumed=Assumed(elements=70))
    assert held(given, "cache") == 70 * MIB and not given.not_counted
    on_disk = Stage("Cache", cached.parts, cached.inputs, facts=frozenset({"on_disk"}))
    assert held(price(on_disk), "cache") == 0 and not price(on_disk).not_counted


def test_autotune_goes_by_the_processors() -> None:
    mapped = after(source(), "ParallelMap", IMAGE, num_parallel_calls=AUTOTUNE)
    few, many = price(mapped, assumed=Assumed(cpus=2)), price(mapped, assumed=Assumed(cpus=64))
    assert held(few, "map") == 2 * (MIB + 8)
    assert held(many, "map") == 16 * (MIB + 8)
    calls = next(each for each in many.buffers if each.stage == "map")
    assert calls.high >= 64 * MIB  # it may use them all


def test_what_tensorflow_adds_by_itself() -> None:
    named = [each.stage for each in price(images(), Options()).buffers]
    assert named == ["map (made parallel by TensorFlow)", "prefetch (added by TensorFlow)", "the training loop"]
    ended = after(after(images(), "Prefetch", buffer_size=AUTOTUNE), "Options")
    assert "prefetch (added by TensorFlow)" not in [each.stage for each in price(ended, Options()).buffers]
    tuned = next(each for each in price(ended).buffers if each.stage == "prefetch")
    assert (tuned.expected, tuned.high) == (PREFETCH * MIB, PREFETCH_HIGH * MIB)
    stateful = Stage("Map", (IMAGE,), (source(),), facts=frozenset({"stateful"}))
    assert held(price(stateful, Options()), "map") == MIB + 8


def test_arrays_have_their_peak_before_the_first_step() -> None:
    slices = Stage("TensorSlice", (IMAGE,), elements=300, own=300 * MIB)
    pipeline = price(after(slices, "Shuffle", buffer_size=200))
    assert pipeline.steady == 300 * MIB  # the shuffle keeps slices of the array
    assert pipeline.expected == COPIES * 300 * MIB
    assert pipeline.high >= (COPIES + 1) * 300 * MIB
    odd = Stage("TensorSlice", (Part((5,), "float32", 4),), elements=100, own=2000)
    assert held(price(after(odd, "Shuffle", buffer_size=50)), "shuffle") == 50 * 20  # not aligned: copied


def test_open_files_of_an_interleave() -> None:
    inner = Stage("TFRecord", (Part((), "string", 0),))
    settings = {"cycle_length": 4, "block_length": 2, "num_parallel_calls": 2}
    made = Stage("ParallelInterleave", inner.parts, (source(100),), settings, inner=inner)
    pipeline = price(made, assumed=Assumed(text=1000, text_high=2000))
    assert held(pipeline, "interleave") == (4 + 8) * 5 * 1000
    assert held(pipeline, "records") == 12 * ((256 << 10) + 1000)
    few = price(Stage("ParallelInterleave", inner.parts, (source(3),), settings, inner=inner))
    assert next(each for each in few.buffers if each.stage == "interleave").count == 3 * 5
    one = price(Stage("Interleave", inner.parts, (source(100),), {"cycle_length": 4}, inner=inner))
    assert next(each for each in one.buffers if each.stage == "records" and each.count).count == 4


def test_what_is_guessed_is_said() -> None:
    unknown = after(source(), "Map", Part((None, None, 3), "uint8", 1))
    pipeline = price(after(unknown, "Shuffle", buffer_size=10), assumed=Assumed(side=100, side_high=200))
    assert held(pipeline, "shuffle") == 10 * 100 * 100 * 3
    assert pipeline.assumed == ("a uint8 tensor of shape (?, ?, 3): each unknown side counts as 100, at most 200",)
    assert pipeline.high >= HEAP * 10 * 200 * 200 * 3
    assert not price(batched(images(), 4)).assumed  # a batch's size is known, though TensorFlow shows it as unknown


def test_a_stage_that_is_not_known_is_not_passed_over() -> None:
    pipeline = price(after(images(), "GroupByWindow"))
    assert pipeline.not_counted == ("tf.data: what GroupByWindow keeps in memory is not known",)


def test_shuffle_after_batch_is_warned_of() -> None:
    late = price(after(batched(images(), 16), "Shuffle", buffer_size=100))
    [text] = warnings_of(late)
    assert "shuffle(100) comes after batch(16)" in text and "63 x 16 MiB = 1008 MiB" in text and "63 MiB" in text


def test_shuffle_of_decoded_images_is_warned_of() -> None:
    [text] = warnings_of(price(after(images(), "Shuffle", buffer_size=500)))
    assert "500 x 1 MiB = 500 MiB" in text and "before map" in text and "4 KiB" in text
    assert not warnings_of(price(after(images(), "Shuffle", buffer_size=5)))  # not worth a word
    names = after(after(source(), "Shuffle", buffer_size=500), "Map", IMAGE)
    assert not warnings_of(price(names))


def test_a_cache_that_does_not_fit_is_warned_of() -> None:
    pipeline = price(after(images(2000), "Cache"))
    fits = warnings_of(pipeline, ram=1 << 40)
    too_much = warnings_of(pipeline, ram=1 << 30)
    assert not fits
    assert any("does not fit in 1.00 GiB" in each and "cache('FILE')" in each for each in too_much)
    assert any("exit code 137" in each for each in too_much)


def test_large_prefetches_and_arrays_are_warned_of() -> None:
    [far] = warnings_of(price(after(batched(images(), 32), "Prefetch", buffer_size=20)))
    assert "20 x 32 MiB = 640 MiB" in far and "prefetch(2) keeps 64 MiB" in far
    assert not warnings_of(price(after(batched(images(), 32), "Prefetch", buffer_size=2)))
    [tuned] = warnings_of(price(after(batched(images(), 32), "Prefetch", buffer_size=AUTOTUNE)))
    assert "AUTOTUNE" in tuned
    [arrays] = warnings_of(price(Stage("TensorSlice", (IMAGE,), elements=300, own=300 * MIB)))
    assert "whole arrays of 300 MiB" in arrays and "900 MiB" in arrays


def test_shapes_that_change_are_warned_of() -> None:
    changing = batched(after(source(), "Map", Part((None, 64), "float32", 4)), 4)
    assert any("memory grows" in each and "(?, ?, 64)" in each for each in warnings_of(price(changing)))
    assert not warnings_of(price(batched(images(), 4)))


def test_names_of_classes_and_operations_agree() -> None:
    assert kind_of("_ParallelMapDataset") == kind_of("ParallelMapDatasetV2") == "ParallelMap"
    assert kind_of("TFRecordDatasetV2") == kind_of("TFRecordDataset") == "TFRecord"


def test_a_batch_that_parallel_calls_feed_has_two_batches_of_elements() -> None:
    fast = batched(after(source(), "ParallelMap", IMAGE, num_parallel_calls=2), 8)
    assert held(price(fast), "batch") == 16 * MIB
    slow = batched(after(source(), "ParallelMap", IMAGE, num_parallel_calls=1), 8)
    assert held(price(slow), "batch") == held(price(batched(images(), 8)), "batch") == 8 * MIB


def test_elements_that_leave_in_any_order_leave_gaps_in_the_heap() -> None:
    """Single ones as well as batches; blocks of more than 32 MiB are not in the heap."""
    single = price(after(images(), "Shuffle", buffer_size=100))
    assert single.gaps == int(GAPS["shuffle"] * 100 * MIB)
    assert single.expected == single.steady + single.gaps < single.high
    batches = price(after(batched(images(), 8), "Shuffle", buffer_size=20))
    assert batches.gaps == int(GAPS["shuffle"] * 20 * 8 * MIB + GAPS_OF_BATCHES * held(batches, "batch"))
    large = price(after(batched(images(), 40), "Shuffle", buffer_size=20))
    assert large.gaps == int(GAPS_OF_BATCHES * held(large, "batch")), "only the images of a batch are in the heap"


def test_batches_in_order_leave_gaps_where_their_images_were() -> None:
    ahead = price(after(batched(images(), 8), "Prefetch", buffer_size=10))
    assert ahead.gaps == int(GAPS_OF_BATCHES * held(ahead, "batch")) > 0
