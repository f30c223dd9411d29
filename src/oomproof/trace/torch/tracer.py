"""The tracer: runs PyTorch code on fake CPU tensors and writes every block of memory into the ledger.

    with Tracer() as tracer:
        model = build()                  # no memory, no arithmetic
        tracer.ledger.start_step()
        loss = model(images).sum()       # shapes, lifetimes, owners; values only where code asks for them
        loss.backward()

It is a FakeTensorMode that watches its own operations. What PyTorch does otherwise on a GPU than on the CPU is
the business of dialect.py.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from oomproof.errors import JobError, Unanswerable
from oomproof.frameworks.torch import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    storage_key,
)
from oomproof.trace.request import check_patience
from oomproof.trace.torch.activity import work_of
from oomproof.trace.torch.around.interrupt import Interrupt
from oomproof.trace.torch.around.said_device import Asked
from oomproof.trace.torch.around.stand_ins import stand_ins
from oomproof.trace.torch.contents import LARGEST_VALUE, Contents
from oomproof.trace.torch.gpu.scratch import call_spec
from oomproof.trace.torch.gpu.written_out import held_bytes
from oomproof.trace.torch.ledger import Ledger
from oomproof.trace.torch.shapes.fakes import Fakes
from oomproof.trace.torch.shapes.forms import SAME
from oomproof.trace.torch.shapes.operations import (
    RANDOM_FILL,
    OpFacts,
    as_for_real,
    empty_image,
    find_written,
    look_up,
)
from oomproof.trace.torch.shapes.shapes import key_of, learn_shapes, recall_shapes
from oomproof.trace.torch.values import (
    CPU,
    View,
    map_leaves,
    plain_arithmetic,
    tensors_in,
)

aten = torch.ops.aten

_DEVICE, _META = torch.ops.prim.device.default, torch.device("meta")


class Tracer(FakeTensorMode):  # type: ignore[misc]
    """``demands`` counts, operation by operation, how often a value was asked for."""

    def __init__(self, patience: int | None = None, *, told: Asked | None = None) -> None:
        """``told``: Python code hears that what is traced is on a GPU, and the first line that asks is noted there."""
        super().__init__(allow_non_fake_inputs=True)
        self._patience, self.told = patience, told
        self.cache_enabled = False  # FakeTensorMode's own memory: Shapes is quicker
        self.ledger = Ledger()
        self.demands: Counter[str] = Counter()
        self.contents = Contents(self.ledger)
        self._fakes = Fakes(self)
        self._inside_of = 0
        """the thread for which FakeTensorMode is at work on an operation"""
        self._building = True
        self._landing: bool | None = None
        self._gpu_named = False
        """the operation was asked to make its result on a GPU"""
        self._open = ExitStack()
        self._depth, self._thread = 0, 0
        self._one_at_a_time = threading.RLock()
        self._interrupt = Interrupt()

    def __enter__(self) -> Tracer:
        """PyTorch enters a mode once more for operations on its tensors in other threads; nothing more is put in place
        for those."""
        if self._depth == 0:
            self._open.enter_context(self._interrupt.signal_held_back())
            self._open.enter_context(stand_ins(self))
            self._thread = threading.get_ident()
        if threading.get_ident() == self._thread:
            self._depth += 1
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if threading.get_ident() == self._thread:
            self._depth -= 1
            if self._depth == 0:
                self._open.close()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """What a trace needs around it, without the mode: for a session, which sends it the operations of the GPU."""
        with stand_ins(self):
            self._depth, self._thread = 1, threading.get_ident()
            try:
                yield
            finally:
                self._depth = 0

    @property
    def inside(self) -> bool:
        """Whether this thread is in what FakeTensorMode does for an operation."""
        return self._inside_of == threading.get_ident()

    # -- dispatch ----------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and type(args[0]) is FakeTensor:  # asked more often than operations are run
            with self._one_at_a_time:  # else another thread's kernel may be the one that runs
                return _META if args[0].fake_mode.in_kernel_invocation else args[0].fake_device
        if self.inside:  # while FakeTensorMode decomposes an operation, its parts are not blocks of the real one
            return super().__torch_dispatch__(func, types, args, kwargs)
        facts = look_up(func)
        with self._one_at_a_time:
            return (self._run_apart if facts.apart else self._run)(func, facts, types, args, kwargs or {})

    def _run_apart(self, func: Any, facts: OpFacts, types: Any, args: Any, kwargs: Any) -> Any:
        """Operations that are not simply run on shapes."""
        if func.namespace in ("prim", "profiler"):
            # Questions about a fake tensor (its device) are not operations, and must not fail; what optimizers tell a
            # profiler about themselves is not part of the step.
            return self._fake(func, types, args, kwargs)
        if (for_real := as_for_real(func)) is not func:
            func, facts = for_real, look_up(for_real)
        self._between_operations()
        remember = self.ledger.advance()
        if func is aten.index.Tensor:
            args = (args[0], self._without_masks(args[1]))
        elif func is aten.lift_fresh.default or func is aten.lift.default:
            return self._lift(func, types, args, kwargs)
        elif facts.name in RANDOM_FILL and self._building and self.ledger.builder.phase == "setup":
            return args[0]  # weights are never looked at
        if facts.asks or empty_image(facts, args):
            return self._answer(func, facts.name, args, self._here(kwargs))
        if facts.at_once:
            return self._at_once(facts, args)
        return self._run_watched(func, facts, types, args, self._here(kwargs), remember=remember)

    def _run(self, func: Any, facts: OpFacts, types: Any, args: Any, kwargs: Any) -> Any:
        self._between_operations()
        remember = self.ledger.advance()
        if facts.view is not None and type(args[0]) is FakeTensor and args[0].constant is None:
            out = self._fakes.view(facts.view, args, kwargs)
            self.ledger.note_nodes()
            return out  # a view costs nothing
        return self._run_watched(func, facts, types, args, self._here(kwargs), remember=remember)

    def _fake(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What FakeTensorMode says."""
        self._inside_of = threading.get_ident()
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._inside_of = 0

    def _run_watched(self, func: Any, facts: OpFacts, types: Any, args: Any, kwargs: Any, *, remember: bool) -> Any:
        """Runs an operation on shapes; new storages become blocks, and its work is noted down."""
        key = key_of(facts, args, kwargs) if facts.recurs else None
        seen = None if key is None else recall_shapes(key, func, args, kwargs)
        if seen is not None:
            out = args[0] if seen.forms is SAME else self._fakes.make_tensors(seen.forms)
            outs = [out] if type(out) is FakeTensor else tensors_in(out) if isinstance(out, (list, tuple)) else []
            fresh = {} if seen.forms is SAME else dict(enumerate(outs))
        else:
            before = {storage_key(tensor.untyped_storage()) for tensor in tensors_in(args, kwargs)}
            try:
                out = self._fake(func, types, args, kwargs)
            except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
                return self._answer(func, facts.name, args, kwargs)
            outs = tensors_in(out if isinstance(out, (list, tuple)) else (out,))
            if any(each.layout is not torch.strided for each in outs):
                raise JobError(_SPARSE.format(facts.name))
            seen = learn_shapes(key, args, kwargs, out)
            fresh = {at: each for at, each in enumerate(outs) if storage_key(each.untyped_storage()) not in before}
        work = seen.work or seen.work_out(facts, args, kwargs, outs)
        written = find_written(facts, args, kwargs) if facts.written else []
        self.ledger.note_nodes()
        if fresh or written:  # a view costs nothing
            self.ledger.ran(facts.name, work, fresh.values(), written)
            self._hold_more(facts, args, fresh)
            if self._lands_off_device(args, kwargs):
                for each in fresh.values():
                    self.ledger.take_off_device(each)
            else:
                self._note_place(facts.name, args, kwargs, fresh)
            if seen.mixes:
                self.ledger.note_mixing()
        if seen.spec is not None:
            self.ledger.call(seen.spec)
        if not remember or (self.ledger.priming and any(each.numel() > 1 for each in (*outs, *written))):
            self.contents.forget(written)
        elif fresh or written:
            self.contents.remember(func, facts, args, kwargs, fresh=fresh, written=written)
        return out

    def _hold_more(self, facts: OpFacts, args: Any, fresh: dict[int, torch.Tensor]) -> None:
        if facts.keeps_more and 0 in fresh:
            self.ledger.hold(fresh[0], held_bytes(facts.name, args, fresh[0]))

    def _lands_off_device(self, args: Any, kwargs: Any) -> bool:
        """Whether results are in host RAM: where all that they are made from is."""
        if self._landing is not None:
            return self._landing
        if not self.ledger.off_device:
            return False
        given = tensors_in(args, kwargs)
        return bool(given) and all(map(self.ledger.is_off_device, given))

    def _note_place(self, name: str, args: Any, kwargs: Any, fresh: dict[int, torch.Tensor]) -> None:
        """Results are where their arguments are, on the GPU if one is; what is made from nothing is on the CPU."""
        if self.told is None or self._gpu_named or self._landing is not None:
            return
        if all(map(self.ledger.is_on_cpu, tensors_in(args, kwargs))):
            made = list(fresh.values())
        else:
            made = [fresh[1]] if name == "_pack_padded_sequence" and 1 in fresh else []  # the lengths
        self.ledger.made_on_cpu.update(storage_key(each.untyped_storage()) for each in made)

    def _here(self, kwargs: Any) -> Any:
        """A device named in an operation becomes the one that is traced on."""
        device = kwargs.get("device")
        self._gpu_named = device is not None and device.type == "cuda"
        return kwargs if device is None or device.type == "cpu" else {**kwargs, "device": CPU}

    def copy_across(self, tensor: torch.Tensor, *, off_device: bool) -> torch.Tensor:
        """A copy on the other side: in host RAM (``off_device``), or on the GPU."""
        self._landing = off_device
        try:
            return tensor.clone()
        finally:
            self._landing = None

    def _between_operations(self) -> None:
        if self._interrupt.asked:
            self._interrupt.check()
        while self.ledger.outlived:
            self.ledger.outlived.pop().settle()

    def _at_once(self, facts: OpFacts, args: Any) -> Any:
        """List-at-once arithmetic of optimizers: shapes are those of the first list, values do not matter. (Through
        FakeTensorMode such an operation takes a millisecond a tensor.) ``capturable`` ones raise a number to a list."""
        given = next(each for each in args if isinstance(each, list | tuple))
        self.contents.forget(find_written(facts, args, {}))
        self.ledger.ran(facts.name, work_of(facts.name, args, tensors_in(args), given), [], [])
        if facts.written:
            return None
        results = [self._empty_like(tensor) for tensor in given]
        for tensor in results:
            self.ledger.track(tensor, facts.name)
        return results

    def _empty_like(self, tensor: torch.Tensor) -> Any:
        func, args = aten.empty_like.default, (tensor,)
        key = key_of(look_up(func), args, {})
        seen = None if key is None else recall_shapes(key, func, args, {})
        return self._fake(func, (), args, {}) if seen is None else self._fakes.make_tensors(seen.forms)

    def _without_masks(self, indices: Any) -> list[Any]:
        """Indexing by a mask is nonzero and then indexing, as the eager kernel does it."""
        flat: list[Any] = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                places = self.__torch_dispatch__(aten.nonzero.default, (), (index,))
                flat += [self.__torch_dispatch__(aten.select.int, (), (places, 1, at)) for at in range(index.dim())]
            else:
                flat.append(index)
        return flat

    def _lift(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        real = args[0]
        if type(real) is torch.Tensor and self._fakes.can_be_like(real):
            out = self._fakes.like(real)
        else:
            out = self._fake(func, types, args, kwargs)
        if not isinstance(real, FakeTensor):
            self.ledger.track(out, "input")
            self.ledger.made_on_cpu.add(storage_key(out.untyped_storage()))
            self.contents.know(out, real)
        return out

    # -- values ------------------------------------------------------------------------------------------------

    def know_weights(self, model: torch.nn.Module) -> None:
        """What costly operations make of these is a network output; whatever filled them is forgotten."""
        self._building = False
        for parameter in model.parameters():
            self.contents.call_weight(parameter)

    def compute(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real CPU tensor with the content of a fake one."""
        with plain_arithmetic():
            return View(self.contents.value_of(tensor), tensor).tensor()

    def adopt(self, real: torch.Tensor) -> torch.Tensor:
        """A fake tensor with the content of a real one."""
        fake = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype)
        self.contents.know(fake, real)
        return fake.requires_grad_(real.requires_grad)

    def lay_out(self, real: torch.Tensor, op: str, *, weight: bool = False) -> torch.Tensor:
        """A fake tensor that lies in memory as a real one does, with its content; a ``weight``'s content is let go."""
        fake: torch.Tensor = self._fakes.like(real)
        self.ledger.track(fake, op)
        if weight:
            self.contents.call_weight(fake)
        elif fake.untyped_storage().nbytes() <= LARGEST_VALUE:
            self.contents.know(fake, real)
        return fake

    def _answer(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """A data-dependent operation: run for real on the CPU, on values that are computed now."""
        self.demands[name] += 1
        check_patience(self.demands, self._patience)
        self.ledger.note_question()
        is_number = name == "_local_scalar_dense" and args[0].dtype.is_floating_point
        if is_number and self.contents.value_of(args[0]).from_network:
            return NETWORK_NUMBER

        def real(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return View(self.contents.value_of(leaf), leaf).tensor()
            return CPU if isinstance(leaf, torch.device) else leaf

        with plain_arithmetic():
            real_args, real_kwargs = map_leaves(real, args), map_leaves(real, kwargs)
            try:
                out = func(*real_args, **real_kwargs)
            except (NotImplementedError, RuntimeError) as error:
                raise Unanswerable(_unanswerable(name, error)) from error

        off_device = self._lands_off_device(args, kwargs)

        def make_fake(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            fake = self._fakes.like(leaf)
            self.ledger.track(fake, name)
            if off_device:
                self.ledger.take_off_device(fake)
            self.contents.know(fake, leaf)
            return fake

        answer = map_leaves(make_fake, tuple(out)) if isinstance(out, tuple) else map_leaves(make_fake, out)
        self.ledger.note_nodes()
        outs = tensors_in(answer if isinstance(answer, (list, tuple)) else (answer,))
        if not off_device:
            self._note_place(name, args, kwargs, dict(enumerate(outs)))
        spec = call_spec(name, args, outs)
        if spec is not None:
            self.ledger.call(spec)
        return answer


NETWORK_NUMBER = 0.5
"""What ``loss.item()`` says: some plausible number that costs nothing to find."""


_SPARSE = (
    "the step makes a sparse tensor (operation '{}'), whose memory is not forecast. Train with dense ones: "
    "nn.Embedding(..., sparse=False), whose gradient is as large as its table"
)


def _unanswerable(name: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"the job asks for a value that only running it would give: operation '{name}' cannot be computed here "
        f"({reason}). Give the batch factory real values for what it looks at, or move that code out of the step"
    )
