"""Orders in which TensorFlow's executor may run a graph.

Each thread of the executor has a queue of ready nodes and works through it first in, first out. What it does with a
node that has become ready depends on the kernel. GPU kernels only launch work, so they count as cheap and join the
queue: the order is that of one queue (``gpu``). Kernels of a CPU count as expensive: one of them is kept if the queue
is empty, the others are handed to the thread pool, which takes the newest first (``cpu``). What is left open is the
order in which nodes are seen that become ready at once (edges.py): it differs from process to process.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from oomproof.trace.tensorflow.buffers.kernels import CHEAP
from oomproof.trace.tensorflow.graph.graph import Graph, Node
from oomproof.trace.tensorflow.order.edges import Edges, edges_of

Order = list[int]
PROCESSES = {"gpu": 3, "cpu": 15}
"""processes that are looked at, each with its own order. The peak of a GPU's order was the same in all of them for
every model seen"""


def gpu_order(graph: Graph, seed: int | None = None) -> Order:
    """One queue. With a seed, as in one of the processes that it stands for."""
    return order_by_executor(graph, edges_of(graph, seed), on_gpu=True)


def cpu_order(graph: Graph, seed: int | None = None) -> Order:
    """One thread for operations (inter_op_parallelism_threads=1)."""
    return order_by_executor(graph, edges_of(graph, seed), on_gpu=False)


def longest_first(graph: Graph) -> Order:
    """Always the node with the longest way to the end. Gradients of weights, which lead to little, then wait for the
    end of the backward pass with all that they need: the worst that a CPU was seen to come near to."""
    waiting, users = _count_waiting(graph)
    way = [0] * len(graph.nodes)
    for number in range(len(graph.nodes) - 1, -1, -1):
        way[number] = 1 + max((way[user] for user in users[number]), default=0)
    ready = [(-way[number], number) for number in range(len(graph.nodes)) if waiting[number] == 0]
    heapq.heapify(ready)
    order: Order = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for user in users[number]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (-way[user], user))
    return order


def likely_orders(graph: Graph, *, on_gpu: bool) -> dict[str, Order]:
    """One for each of several processes. What to expect is in the middle between their peaks."""
    return _in_processes(graph, PROCESSES["gpu" if on_gpu else "cpu"], on_gpu)


def other_orders(graph: Graph, *, on_gpu: bool) -> dict[str, Order]:
    """Orders that a run may come near to where more than one thread is at work."""
    orders = _in_processes(graph, PROCESSES["gpu"], not on_gpu)
    return orders if on_gpu else orders | {"longest first": longest_first(graph)}


def _in_processes(graph: Graph, count: int, on_gpu: bool) -> dict[str, Order]:
    name = "gpu" if on_gpu else "cpu"
    return {
        f"{name}, process {seed}": order_by_executor(graph, edges_of(graph, seed), on_gpu=on_gpu)
        for seed in range(count)
    }


def order_by_name(graph: Graph, names: Iterable[str]) -> Order:
    """As a run was seen to go, by names of nodes; nodes that were not seen run when they are first needed."""
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    seen = [place[name] for name in dict.fromkeys(names) if name in place]
    order: Order = []
    done: set[int] = set()
    for wanted in (*seen, *range(len(graph.nodes))):
        stack = [wanted]
        while stack:
            number = stack[-1]
            node = graph.nodes[number]
            missing = [] if number in done else [n for n in _before(node) if n not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if number not in done:
                done.add(number)
                order.append(number)
    return order


def order_by_executor(graph: Graph, edges: Edges, *, on_gpu: bool) -> Order:
    """The executor's order where it goes through edges as given."""
    waiting = [len(node.inputs) + len(node.controls) for node in graph.nodes]
    is_cheap = [on_gpu or node.op in CHEAP for node in graph.nodes]
    queue = deque(number for number in edges.first if is_cheap[number])
    pool = deque(number for number in reversed(edges.first) if not is_cheap[number])
    order: Order = []
    while pool or queue:
        if not queue:
            queue.append(pool.popleft())
        number = queue.popleft()
        order.append(number)
        expensive: list[int] = []
        for user in edges.users[number]:
            waiting[user] -= 1
            if waiting[user] == 0:
                (queue if is_cheap[user] else expensive).append(user)
        if expensive and not queue:
            queue.append(expensive.pop())
        pool.extendleft(expensive)
    return order


def _count_waiting(graph: Graph) -> tuple[list[int], list[list[int]]]:
    return [len(set(_before(node))) for node in graph.nodes], graph.users()


def _before(node: Node) -> list[int]:
    return [*(ref[0] for ref in node.inputs), *node.controls]
