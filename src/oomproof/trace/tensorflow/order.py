"""Orders in which TensorFlow's executor may run a graph.

Each thread of the executor has a queue of ready nodes and works through it first in, first out. What it does with a
node that has become ready depends on the kernel. GPU kernels only launch work, so they count as cheap and join the
queue: the order is that of one queue (``gpu``). Kernels of a CPU count as expensive: one of them is kept if the queue
is empty, the others are handed to the thread pool, which takes the newest first (``cpu``).
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable

from oomproof.trace.tensorflow.graph import Graph, Node
from oomproof.trace.tensorflow.kernels import CHEAP

Order = list[int]
SHUFFLED = 3
"""other outcomes of races that are looked at"""


def gpu_order(graph: Graph, seed: int | None = None) -> Order:
    """One queue. With a seed, nodes that become ready at once come in another order, as races may have it."""
    return _executed(graph, lambda node: True, seed)


def cpu_order(graph: Graph, seed: int | None = None) -> Order:
    """One thread for operations (inter_op_parallelism_threads=1)."""
    return _executed(graph, lambda node: node.op in CHEAP, seed)


def longest_first(graph: Graph) -> Order:
    """Always the node with the longest way to the end. Gradients of weights, which lead to little, then wait for the
    end of the backward pass with all that they need: the worst that a CPU was seen to come near to."""
    waiting, users = _waiting(graph)
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


def other_orders(graph: Graph, *, on_gpu: bool) -> dict[str, Order]:
    """Orders that a run may come near to: as on a GPU, as on a CPU, and with other outcomes of races. How the runtime
    lists the nodes of a large graph differs from process to process; a CPU's order follows it, a GPU's hardly does."""
    orders = {"gpu": gpu_order(graph), "cpu": cpu_order(graph)}
    if not on_gpu:
        orders["longest first"] = longest_first(graph)
    for seed in range(1, 1 + SHUFFLED):
        orders[f"gpu, shuffled {seed}"] = gpu_order(graph, seed)
        orders[f"cpu, shuffled {seed}"] = cpu_order(graph, seed)
    return orders


def named_order(graph: Graph, names: Iterable[str]) -> Order:
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


def _executed(graph: Graph, cheap: Callable[[Node], bool], seed: int | None) -> Order:
    waiting, users = _waiting(graph)
    is_cheap = [cheap(node) for node in graph.nodes]
    first = [number for number in range(len(graph.nodes)) if waiting[number] == 0]
    if seed is not None:
        chance = random.Random(seed)
        for each in (first, *users):
            chance.shuffle(each)
    pool, queue = deque(first), deque[int]()
    if all(is_cheap):  # one queue for all of them, the first ones included
        queue, pool = pool, queue
    order: Order = []
    while pool or queue:
        if not queue:
            queue.append(pool.popleft())
        number = queue.popleft()
        order.append(number)
        expensive: list[int] = []
        for user in users[number]:
            waiting[user] -= 1
            if waiting[user] == 0:
                (queue if is_cheap[user] else expensive).append(user)
        if expensive and not queue:
            queue.append(expensive.pop())
        pool.extendleft(expensive)
    return order


def _waiting(graph: Graph) -> tuple[list[int], list[list[int]]]:
    return [len(set(_before(node))) for node in graph.nodes], graph.users()


def _before(node: Node) -> list[int]:
    return [*(ref[0] for ref in node.inputs), *node.controls]
