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

from collections import Counter
from contextlib import ExitStack
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from oomproof.errors import Unanswerable
from oomproof.trace.patience import check_patience
from oomproof.trace.torch.activity import work_of
from oomproof.trace.torch.fakes import Fakes
from oomproof.trace.torch.interrupt import Interrupt
from oomproof.trace.torch.ledger import Ledger
from oomproof.trace.torch.operations import VIEWS, OpFacts, as_for_real, empty_image, look_up, mixes, written_by
from oomproof.trace.torch.scratch import call_spec
from oomproof.trace.torch.shapes import Shapes
from oomproof.trace.torch.stand_ins import stand_ins
from oomproof.trace.torch.values import (
    CPU,
    Layout,
    Operation,
    Value,
    View,
    computing,
    known,
    mapped,
    tensors_in,
)

aten = torch.ops.aten

LARGEST_VALUE = 512 << 20
"""A lazy value of more bytes is never computed: it counts as a network output."""
NETWORK_OP_BYTES = 4 << 20
"""From this size on a costly operation counts as the network's even if no weight takes part (attention)."""

_KEEPS_WEIGHT = frozenset({"_to_copy", "clone", "copy_", "t", "detach"})
_RANDOM_FILL = frozenset({"uniform_", "normal_", "trunc_normal_", "bernoulli_", "random_", "erfinv_"})
_DEVICE, _META = torch.ops.prim.device.default, torch.device("meta")


class Tracer(FakeTensorMode):  # type: ignore[misc]
    """``demands`` counts, operation by operation, how often a value was asked for."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.cache_enabled = False  # FakeTensorMode's own memory: Shapes is quicker
        self.ledger = Ledger()
        self.demands: Counter[str] = Counter()
        self._values = self.ledger.values
        self._facts: dict[Any, OpFacts] = {}
        self._fakes = Fakes(self)
        self._shapes = Shapes(self._fakes)
        self._inside = False
        self._building = True
        self._open = ExitStack()
        self._interrupt = Interrupt()

    def __enter__(self) -> Tracer:
        if not self._inside:
            self._open.enter_context(self._interrupt.kept())
            self._open.enter_context(stand_ins(self))
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if not self._inside:
            self._open.close()

    # -- dispatch ----------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # While FakeTensorMode decomposes an operation, its parts are no blocks of the real one; prim's questions about
        # a fake tensor (its device) are no operations, and must not fail.
        if func is _DEVICE and type(args[0]) is FakeTensor:  # asked more often than operations are run
            return _META if args[0].fake_mode.in_kernel_invocation else args[0].fake_device
        if self._inside or func.namespace == "prim":
            return super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace == "profiler":  # what optimizers tell a profiler about themselves is no part of the step
            return self._fake(func, types, args, kwargs or {})
        return self._run(as_for_real(func), types, args, kwargs or {})

    def _fake(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        self._inside = True
        try:
            view = VIEWS.get(func)
            if view is not None and type(args[0]) is FakeTensor and args[0].constant is None:
                return self._fakes.view(view, args, kwargs)
            key = self._shapes.key(func, args, kwargs) if self._known(func).recurs else None
            if key is None:
                return super().__torch_dispatch__(func, types, args, kwargs)
            out = self._shapes.recalled(self, key, args, kwargs)
            if out is NotImplemented:
                out = super().__torch_dispatch__(func, types, args, kwargs)
                self._shapes.learn(key, args, kwargs, out)
            return out
        finally:
            self._inside = False

    def _run(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        facts = self._known(func)
        self._between_operations()
        remember = self.ledger.advance()
        device = kwargs.get("device")
        if device is not None and device.type != "cpu":
            kwargs = {**kwargs, "device": CPU}
        if func is aten.index.Tensor:
            args = (args[0], self._without_masks(args[1]))
        elif func is aten.lift_fresh.default or func is aten.lift.default:
            return self._lift(func, types, args, kwargs)
        elif facts.name in _RANDOM_FILL and self._building and self.ledger.builder.phase == "setup":
            return args[0]  # weights are never looked at
        if facts.asks or empty_image(facts, args):
            return self._answer(func, facts.name, args, kwargs)
        if facts.at_once:
            return self._at_once(facts, args)
        return self._watched(func, types, args, kwargs, facts=facts, remember=remember)

    def _known(self, func: Any) -> OpFacts:
        return self._facts.get(func) or self._facts.setdefault(func, look_up(func))

    def _watched(self, func: Any, types: Any, args: Any, kwargs: Any, *, facts: OpFacts, remember: bool) -> Any:
        """Runs an operation on shapes; new storages become blocks, and its work is noted down."""
        tensors = tensors_in(args, kwargs)
        before = {tensor.untyped_storage()._cdata for tensor in tensors}
        try:
            out = self._fake(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
            return self._answer(func, facts.name, args, kwargs)
        outs = tensors_in(out if isinstance(out, (list, tuple)) else (out,))
        fresh = [(place, tensor) for place, tensor in enumerate(outs) if tensor.untyped_storage()._cdata not in before]
        self.ledger.note_nodes()
        for _, tensor in fresh:
            self.ledger.track(tensor, facts.name)
        written = written_by(facts, args, kwargs) if facts.written else []
        if fresh or written:  # a view costs nothing
            self._note_work(facts, args, tensors, outs, written)
        if facts.scratch:
            spec = call_spec(facts.name, args, outs)
            if spec is not None:
                self.ledger.call(spec)
        if not remember:
            self._forget(written)
        elif fresh or written:
            self._remember(func, facts, args, kwargs, tensors=tensors, fresh=fresh, written=written)
        return out

    def _note_work(self, facts: OpFacts, args: Any, tensors: Any, outs: Any, written: Any) -> None:
        self.ledger.did(*work_of(facts.name, args, tensors, outs))
        self.ledger.wrote(written)
        if mixes(facts, args, outs):
            self.ledger.mixed()

    def _between_operations(self) -> None:
        self._interrupt.check()
        while self.ledger.outlived:
            self.ledger.outlived.pop().settle()

    def _at_once(self, facts: OpFacts, args: Any) -> Any:
        """List-at-once arithmetic of optimizers: shapes are those of the first list, values do not matter. (Through
        FakeTensorMode such an operation takes a millisecond a tensor.)"""
        self._forget(written_by(facts, args, {}))
        lists = tensors_in(args)
        self.ledger.did(*work_of(facts.name, args, lists, args[0]))
        if facts.written:
            return None
        results = [self._fake(aten.empty_like.default, (), (tensor,), {}) for tensor in args[0]]
        for tensor in results:
            self.ledger.track(tensor, facts.name)
        return results

    def _without_masks(self, indices: Any) -> list[Any]:
        """Indexing by a mask is nonzero and then indexing, as the eager kernel does it."""
        flat: list[Any] = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                places = self._run(aten.nonzero.default, (), (index,), {})
                flat += [self._run(aten.select.int, (), (places, 1, dim), {}) for dim in range(index.dim())]
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
            self._values[out.untyped_storage()._cdata] = known(real)
        return out

    # -- values ------------------------------------------------------------------------------------------------

    def value_of(self, tensor: torch.Tensor) -> Value:
        if not isinstance(tensor, FakeTensor):
            return known(tensor)
        key = tensor.untyped_storage()._cdata
        value = self._values.get(key)
        if value is None:
            value = Value(tensor.untyped_storage().nbytes(), tensor.dtype, from_network=True)
            self._values[key] = value
        return value

    def know_weights(self, model: torch.nn.Module) -> None:
        """What costly operations make of these is a network output; whatever filled them is forgotten."""
        self._building = False
        for parameter in model.parameters():
            storage = parameter.untyped_storage()
            self._values[storage._cdata] = Value(storage.nbytes(), parameter.dtype, weight=True)

    def _forget(self, written: list[torch.Tensor]) -> None:
        """Contents that are no longer what they were; an updated weight stays a weight."""
        for tensor in written:
            key = tensor.untyped_storage()._cdata
            if key in self._values and not self._values[key].weight:
                del self._values[key]

    def compute(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real CPU tensor with the content of a fake one."""
        with computing():
            return View(self.value_of(tensor), tensor).tensor()

    def adopt(self, real: torch.Tensor) -> torch.Tensor:
        """A fake tensor with the content of a real one."""
        fake = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype)
        self._values[fake.untyped_storage()._cdata] = known(real)
        return fake.requires_grad_(real.requires_grad)

    def _remember(
        self, func: Any, facts: OpFacts, args: Any, kwargs: Any, *, tensors: Any, fresh: Any, written: Any
    ) -> None:
        """Gives every storage the operation made or wrote its Value."""
        if facts.name == "_amp_foreach_non_finite_check_and_unscale_":
            return  # gradients are finite: a skipped step would have no optimizer state
        values = [self.value_of(tensor) for tensor in tensors]
        weight = any(value.weight for value in values)
        made = [(tensor, tensor.untyped_storage()) for _, tensor in fresh]
        sizes = [storage.nbytes() for _, storage in made]
        old = {tensor.untyped_storage()._cdata: self.value_of(tensor) for tensor in written}
        size = sum(sizes) + sum(self.value_of(tensor).bytes for tensor in written)
        keeps = weight and facts.name in _KEEPS_WEIGHT
        if size > LARGEST_VALUE or (facts.costly and (weight or size > NETWORK_OP_BYTES)):
            made += [(tensor, tensor.untyped_storage()) for tensor in written]
            for tensor, storage in made:
                self._values[storage._cdata] = Value(storage.nbytes(), tensor.dtype, weight=keeps, from_network=True)
            return

        def seen(leaf: Any) -> Any:
            return View(self.value_of(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf

        network = any(value.from_network for value in values)
        layouts = [Layout(place, tensor) for place, tensor in fresh]
        kwargs = mapped(seen, kwargs) if kwargs else kwargs
        operation = Operation(func, mapped(seen, args), kwargs, seen=values, written=list(old.values()), fresh=layouts)
        for place, (key, value) in enumerate(old.items()):
            self._values[key] = Value(
                value.bytes, value.dtype, operation=operation, result=place, weight=value.weight, from_network=network
            )
        for place, ((tensor, storage), nbytes) in enumerate(zip(made, sizes, strict=True), start=len(old)):
            self._values[storage._cdata] = Value(
                nbytes, tensor.dtype, operation=operation, result=place, weight=keeps, from_network=network
            )

    def _answer(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """A data-dependent operation: run for real on the CPU, on values that are computed now."""
        self.demands[name] += 1
        check_patience(self.demands)
        self.ledger.asked()
        if name == "_local_scalar_dense" and args[0].dtype.is_floating_point and self.value_of(args[0]).from_network:
            return NETWORK_NUMBER

        def real(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return View(self.value_of(leaf), leaf).tensor()
            return CPU if isinstance(leaf, torch.device) else leaf

        with computing():
            real_args, real_kwargs = mapped(real, args), mapped(real, kwargs)
            try:
                out = func(*real_args, **real_kwargs)
            except (NotImplementedError, RuntimeError) as error:
                raise Unanswerable(_unanswerable(name, error)) from error

        def faked(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            fake = self._fakes.like(leaf)
            self.ledger.track(fake, name)
            self._values[fake.untyped_storage()._cdata] = known(leaf)
            return fake

        answer = mapped(faked, tuple(out)) if isinstance(out, tuple) else mapped(faked, out)
        self.ledger.note_nodes()
        outs = tensors_in(answer if isinstance(answer, (list, tuple)) else (answer,))
        spec = call_spec(name, args, outs)
        if spec is not None:
            self.ledger.call(spec)
        return answer


NETWORK_NUMBER = 0.5
"""What ``loss.item()`` says: some plausible number that costs nothing to find."""


def _unanswerable(name: str, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"the job asks for a value that only running it would give: operation '{name}' cannot be computed here "
        f"({reason}). Give the batch factory real values for what it looks at, or move that code out of the step"
    )
