"""A TensorFlow training step as a Timeline, without running it.

The step is traced to a graph, the graph goes through TensorFlow's own optimizer as on a GPU, and the order in which the
executor would run it decides which memory is held when. That order changes from process to process, so several
processes are looked at. The one whose peak is nearest to the middle between their lowest and highest is the Timeline;
the peaks of all of them, and of other orders, are told beside it (``about.orders``): the highest makes the upper
figure of a forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from oomproof.memory.about import About
from oomproof.memory.timeline import Builder, Timeline
from oomproof.trace.tensorflow.beside import Beside
from oomproof.trace.tensorflow.buffers.liveness import Execution
from oomproof.trace.tensorflow.graph.branches import take_branches
from oomproof.trace.tensorflow.graph.capture import Captured, capture, tensorflow
from oomproof.trace.tensorflow.graph.folding import fold_constants
from oomproof.trace.tensorflow.graph.graph import Graph, Node
from oomproof.trace.tensorflow.graph.grappler import run_grappler
from oomproof.trace.tensorflow.graph.reading import GraphReader
from oomproof.trace.tensorflow.order.order import Order, likely_orders, order_by_name, other_orders
from oomproof.trace.tensorflow.roles import Roles, roles_of, variable_roles
from oomproof.trace.tensorflow.scratch import read_call
from oomproof.trace.tensorflow.work import Workbook, only_for_update

Dialect = Literal["cuda", "cpu"]
WEIGHS = 1 << 20
"""bytes that the operations of a loop's body make together, from which on the loop is worth a word"""
LARGEST = "unknown sides at their longest"
SHARE = 0.5
"""how much of what the data decides on is expected to be there (what a mask leaves over): nothing is known of it"""
AHEAD = "turns of loops ahead"
SHORTEST, FEWEST = "unknown sides at their shortest", 0.02
"""what the lower figure counts of it: an image may have one object of a hundred that there is room for"""
STEPS = 2
"""steps in a Timeline: what the first leaves behind decides where the allocator puts the second"""


@dataclass(frozen=True)
class Names:
    """What a framework above TensorFlow knows of a step. May be filled while the step is traced."""

    scopes: Mapping[str, str] = field(default_factory=dict)
    """name scope -> owner"""
    variables: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """id() of a variable's handle -> (kind, owner)"""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """node that stands for an input -> owner; others have their own name"""


@dataclass(frozen=True)
class PreparedStep:
    """A step's graph as the runtime would run it, with what is needed to lay it out in time."""

    graph: Graph
    roles: Roles
    captured: Captured
    variables: Mapping[str, tuple[str, str]]
    """(kind, owner) by the name of the handle"""
    inputs: Mapping[str, str]
    """owner by the name of the node"""
    capability: str
    guessed: int = 0
    """tensors with a side that is not known before the step runs"""
    without_bound: tuple[str, ...] = ()
    """operations whose results may be larger than was counted"""
    unknown: int | None = None
    """what such a side counts as, where the caller has said it"""
    largest: PreparedStep | None = None
    """the same with every such side as long as it can get"""
    smallest: PreparedStep | None = None
    """and with next to nothing of it"""


@dataclass(frozen=True)
class _Reading:
    """What a graph says where the sides that the data decides on have one length."""

    graph: Graph
    roles: Roles
    variables: Mapping[str, tuple[str, str]]
    guessed: int
    without_bound: tuple[str, ...]


def trace_step(
    step: Callable[..., Any] | Captured,
    batch: Sequence[Any] = (),
    *,
    names: Names | None = None,
    dialect: Dialect = "cuda",
    capability: str = "8.0",
    unknown: int | None = None,
    about: About | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Timeline:
    """One steady training step, twice in a row, as a Timeline.

    ``step(*batch)`` does all of it (forward, loss, gradients, update) with TensorFlow operations: a plain function, a
    tf.function or a ConcreteFunction. ``batch`` is what it is called with: tensors, arrays or TensorSpecs in any
    nesting; only their shapes and types are used. Variables must exist before, or be made in the first call. A step
    that is captured already (session_graph.py) has its batch in it.

    ``dialect``: ``cuda`` for a GPU of compute capability ``capability``; ``cpu`` as this machine would run it with
    one thread for operations, which tests hold against the real allocator. A side of a shape that the data decides
    on counts as half of its bound (SHARE), and as all of it in the upper figure; or always as ``unknown``, where given.
    """
    ready = prepare_step(
        step, batch, names=names, dialect=dialect, capability=capability, unknown=unknown, progress=progress
    )
    return timeline_of(ready, dialect, about=about, progress=progress)


def timeline_of(
    step: PreparedStep,
    dialect: Dialect = "cuda",
    *,
    about: About | None = None,
    may_fork: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Timeline:
    """The Timeline of a process in the middle, with the peaks of the other orders in ``about``. ``may_fork``: forks of
    this process do a part of it (beside.py)."""
    progress("laying out memory")
    on_gpu = dialect == "cuda"

    def find_others() -> dict[str, int]:
        found: dict[str, int] = {}
        if _loops_that_weigh(step.graph):
            top = step.largest or step
            found |= _peaks(top, likely_orders(top.graph, on_gpu=on_gpu), dialect, AHEAD, turns_ahead=True)
        if step.largest is not None:
            graph = step.largest.graph
            largest = likely_orders(graph, on_gpu=on_gpu) | other_orders(graph, on_gpu=on_gpu)
            found |= _peaks(step.largest, largest, dialect, LARGEST)
        if step.smallest is not None:
            shortest = likely_orders(step.smallest.graph, on_gpu=on_gpu)
            found |= _peaks(step.smallest, shortest, dialect, SHORTEST)
        return found

    with Beside(find_others, fork=may_fork) as others:
        likely = likely_orders(step.graph, on_gpu=on_gpu)
        orders = likely | other_orders(step.graph, on_gpu=on_gpu)
        peaks = _peaks(step, orders, dialect)
        expected = lay_out_step(step, orders[in_the_middle({name: peaks[name] for name in likely})], dialect)
        peaks |= others.result()
    return replace(expected, about=replace(describe_step(step, dialect, about or About()), orders=peaks))


def _peaks(
    step: PreparedStep, orders: Mapping[str, Order], dialect: Dialect, sides: str = "", *, turns_ahead: bool = False
) -> dict[str, int]:
    named = {f"{name}, {sides}" if sides else name: order for name, order in orders.items()}
    return {
        name: lay_out_step(step, order, dialect, steps=1, turns_ahead=turns_ahead).peak().bytes
        for name, order in named.items()
    }


def in_the_middle(peaks: Mapping[str, int]) -> str:
    """The process nearest to the middle of the range, from which none is far off. Many have the lowest peak, and the
    one in the middle of their row may be among them, far below the highest; too low a figure is what hurts."""
    middle = (min(peaks.values()) + max(peaks.values())) / 2
    return min(peaks, key=lambda name: (abs(peaks[name] - middle), -peaks[name]))


def prepare_step(
    step: Callable[..., Any] | Captured,
    batch: Sequence[Any] = (),
    *,
    names: Names | None = None,
    dialect: Dialect = "cuda",
    capability: str = "8.0",
    unknown: int | None = None,
    may_fork: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> PreparedStep:
    """The step's graph, optimized and read; ``may_fork`` as in ``timeline_of``."""
    names = names or Names()
    tensorflow()
    progress("tracing the step")
    captured = step if isinstance(step, Captured) else capture(step, batch)
    progress("optimizing the graph")
    definition = run_grappler(captured, gpu=dialect == "cuda", capability=capability)
    progress("reading the graph")
    reader = GraphReader(definition, captured, unknown)

    def read(share: float) -> _Reading:
        graph = reader.read(share)
        graph = fold_constants(take_branches(graph))
        roles = roles_of(graph, names.scopes)
        variables = variable_roles(graph, roles, captured.variables, names.variables)
        return _Reading(graph, roles, variables, reader.guessed, reader.without_bound)

    def as_step(found: _Reading) -> PreparedStep:
        return PreparedStep(
            found.graph, found.roles, captured, found.variables, names.inputs, capability, found.guessed,
            found.without_bound, reader.unknown,
        )  # fmt: skip

    with Beside(partial(read, 1.0), fork=may_fork) as largest, Beside(partial(read, FEWEST), fork=may_fork) as smallest:
        ready = as_step(read(SHARE))
        if not ready.guessed or unknown is not None:
            return ready
        return replace(ready, largest=as_step(largest.result()), smallest=as_step(smallest.result()))


def lay_out_step(
    step: PreparedStep, order: Order, dialect: Dialect, steps: int = STEPS, *, turns_ahead: bool = False
) -> Timeline:
    """The step in an order, as a Timeline. Its work is that of the second step. ``turns_ahead``: turns of loops run
    ahead as far as they can."""
    graph, captured = step.graph, step.captured
    builder = Builder()
    on_gpu = dialect == "cuda"
    # On a CPU, what kernels take for themselves depends on the processor's cache; it is left out there.
    scratch = read_call if on_gpu else lambda graph, node: None
    run = Execution(builder, on_gpu=on_gpu, turns_ahead=turns_ahead, scratch=scratch)
    for variable in captured.variables:
        kind, owner = step.variables[variable.node]
        run.hold_variable(variable.node, variable.bytes, kind=kind, owner=owner, shape=variable.shape)
    run.prepare(graph, step.roles)
    workbook = Workbook(only_for_update(graph, step.roles.phase) if steps == STEPS else frozenset())
    for count in range(steps):
        run.workbook = workbook if count == STEPS - 1 else None
        given = {}
        for number in graph.arguments:
            node = graph.nodes[number]
            kind = "input" if node.name in captured.inputs else "buffer"
            owner = step.inputs.get(node.name, node.name)
            given[number] = run.hold(
                node.outputs[0].bytes, kind=kind, owner=owner, op="input", shape=node.outputs[0].shape
            )
        run.run(graph, order, step.roles, given)
        for memory in given.values():
            run.release(memory)
    return workbook.put_into(builder.build())


def find_measured_order(step: PreparedStep, names: Iterable[str]) -> Order:
    """The order in which a profile shows that nodes ran."""
    return order_by_name(step.graph, names)


def describe_step(step: PreparedStep, dialect: Dialect, about: About) -> About:
    """``about`` with what is known of the step."""
    tf = tensorflow()
    notes, not_counted = [], []
    tensors = f"{step.guessed} tensors whose size depends on the data"
    if step.guessed and step.unknown is not None:
        not_counted.append(f"{tensors}: an unknown side counts as {step.unknown}")
    elif step.guessed:
        notes.append(
            f"{tensors}: what a mask leaves over counts as half of what it is applied to, and in the upper figure as "
            "all of it; what NMS keeps counts as its limit"
        )
    if step.without_bound:
        not_counted.append(
            f"results of {', '.join(step.without_bound[:4])} that are larger than what goes in: the data decides on "
            "their size, and no bound is known"
        )
    loops = _loops_that_weigh(step.graph)
    if loops:
        which = "a loop" if len(loops) == 1 else f"{len(loops)} loops"
        not_counted.append(
            f"turns of {which} that end late, where TensorFlow runs up to ten of them at once (those that begin early "
            "are in the upper figure); and more than two elements of a list where the number of turns cannot be told"
        )
    return replace(
        about,
        framework=f"tensorflow {tf.__version__}",
        dialect=dialect,
        allocator="bfc",
        notes=(*about.notes, *notes),
        not_counted=(*not_counted, *about.not_counted),
        details={
            **about.details,
            "capability": step.capability if dialect == "cuda" else "",
            "nodes": len(step.graph.nodes),
        },
    )


def _loops_that_weigh(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.bodies and _weighs(node.bodies[-1])]


def _weighs(body: Graph) -> bool:
    """Whether the turns of a loop have more than single numbers to compute."""
    return sum(output.bytes for node in body.nodes for output in node.outputs) >= WEIGHS
