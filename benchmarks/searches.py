"""Time structures decoded by search next to their peers.

One command runs all races on one and on two threads, in separate processes, and writes
a CSV and a table:

    pip install -e ".[bench]"
    python benchmarks/searches.py

Values and gradients must first agree with float64; peers that disagree or are not
installed are listed. Targets are for an idle machine.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial import Delaunay
from torch import Tensor

import circuits
from dynamic_programmes.races import Call, Race, drawn, values, with_gradients
from smoothsp.oracles import (
    BinaryGraph,
    BoxSearch,
    Chain,
    Matching,
    SpanningTree,
    SparseMAP,
)

ROWS = 32
Make = Callable[[torch.dtype], Call]


def best(build: Callable[[torch.dtype], Callable[[], object]]) -> Make:
    """Construction and the best output; ``build(dtype)`` makes the constructor."""

    def make(dtype: torch.dtype) -> Call:
        construct = build(dtype)
        return values(lambda: construct().decode()[0])  # type: ignore[attr-defined]

    return make


def asked(question: Callable[[object], Tensor], build: Callable[..., object]) -> Make:
    """A question to one structure, made beforehand."""

    def make(dtype: torch.dtype) -> Call:
        structure = build(dtype)()  # type: ignore[operator]
        return values(lambda: question(structure))

    return make


def trees(n: int) -> Iterator[Race]:
    arcs = drawn(ROWS, n + 1, n + 1)
    name = f"spanning trees, {n} words"

    def ufal(dtype: torch.dtype) -> Call:
        from ufal.chu_liu_edmonds import chu_liu_edmonds

        # of each word its heads
        tables = [np.ascontiguousarray(x.T) for x in arcs.to(dtype).double().numpy()]
        return values(lambda: torch.tensor([chu_liu_edmonds(x)[1] for x in tables]))

    def ours(dtype: torch.dtype) -> Call:
        return with_gradients(lambda x: SpanningTree(x).log_partition(), arcs.to(dtype))

    def torch_struct(dtype: torch.dtype) -> Call:
        from torch_struct import NonProjectiveDependencyCRF

        words = arcs[:, 1:, 1:].to(dtype)
        at = torch.arange(n)
        words[:, at, at] = arcs[:, 0, 1:].to(dtype)
        return with_gradients(
            lambda x: NonProjectiveDependencyCRF(x, multiroot=True).partition, words
        )

    decode = best(lambda dtype: partial(SpanningTree, arcs.to(dtype)))
    yield Race(f"{name}: decode", 2, decode, {"ufal.chu_liu_edmonds": ufal})
    peers = {"torch-struct": torch_struct}
    yield Race(f"{name}: log-partition and gradients", 2, ours, peers)


def matchings(n: int) -> Iterator[Race]:
    scores = drawn(ROWS, n, n)
    name = f"matching, {n} x {n}"

    def scipy(dtype: torch.dtype) -> Call:
        tables = scores.to(dtype).numpy()

        def call() -> Tensor:
            found = [x[linear_sum_assignment(x, maximize=True)].sum() for x in tables]
            return torch.tensor(found)

        return values(call)

    def lapx(dtype: torch.dtype) -> Call:
        from lap import lapjvx_batch

        costs = -scores.to(dtype).double().numpy()
        return values(lambda: -torch.as_tensor(np.asarray(lapjvx_batch(costs)[0])))

    def build(dtype: torch.dtype) -> Callable[[], Matching]:
        return partial(Matching, scores.to(dtype))

    peers = {"scipy": scipy, "lapx": lapx}
    yield Race(f"{name}: decode", 1.5, best(build), peers)
    one = {"smoothsp, the best alone": asked(lambda x: x.decode()[0], build)}
    top = asked(lambda x: x.decode_topk(5)[0][:, 0], build)
    yield Race(f"{name}: top 5", 1 / 12, top, one)


def images(size: int) -> Iterator[Race]:
    nodes = drawn(1, size, size, 2)
    down, right = (drawn(1, *x).abs() for x in ((size - 1, size), (size, size - 1)))
    name = f"graph cut, {size} x {size}"

    def build(dtype: torch.dtype) -> Callable[[], BinaryGraph]:
        given = [x.to(dtype) for x in (nodes, down, right)]
        return lambda: BinaryGraph.grid(*given)

    def pymaxflow(dtype: torch.dtype) -> Call:
        import maxflow

        score, below, beside = (
            x[0].to(dtype).double().numpy() for x in (nodes, down, right)
        )
        most = score.max(2).sum() + below.sum() + beside.sum()
        to_below, to_beside = np.zeros((2, size, size))
        to_below[:-1], to_beside[:, :-1] = below, beside

        def call() -> Tensor:
            graph = maxflow.Graph[float](size * size, 2 * size * size)
            at = graph.add_grid_nodes((size, size))
            ways = ((to_below, (2, 1)), (to_beside, (1, 2)))
            for weights, place in ways:
                shape = np.zeros((3, 3))
                shape[place] = 1
                graph.add_grid_edges(at, weights, shape, symmetric=True)
            gain = score[..., 1] - score[..., 0]
            graph.add_grid_tedges(at, np.maximum(gain, 0), np.maximum(-gain, 0))
            flow = graph.maxflow()
            graph.get_grid_segments(at)
            return torch.tensor([most - flow])

        return values(call)

    yield Race(f"{name}: decode", 1.5, best(build), {"PyMaxflow": pymaxflow})
    if size <= 64:
        one = {"smoothsp, the best alone": asked(lambda x: x.decode()[0], build)}
        every = asked(lambda x: x.max_marginals().flatten(1).amax(1), build)
        yield Race(f"{name}: max-marginals", 1 / 20, every, one)


def superpixels(V: int) -> Iterator[Race]:
    places = np.random.default_rng(0).random((V, 2))
    corners = Delaunay(places).simplices
    pairs = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]])
    pairs = np.unique(np.sort(pairs, 1), axis=0)
    index = torch.from_numpy(pairs).long()
    nodes, weights = drawn(1, V, 2), drawn(1, len(pairs)).abs()

    def build(dtype: torch.dtype) -> Callable[[], BinaryGraph]:
        given = nodes.to(dtype), weights.to(dtype)
        return lambda: BinaryGraph(*given, index)

    def pymaxflow(dtype: torch.dtype) -> Call:
        import maxflow

        score, width = (x[0].to(dtype).double().numpy() for x in (nodes, weights))
        most = score.max(1).sum() + width.sum()

        def call() -> Tensor:
            graph = maxflow.Graph[float](V, len(pairs))
            at = graph.add_grid_nodes(V)
            graph.add_edges(pairs[:, 0], pairs[:, 1], width, width)
            gain = score[:, 1] - score[:, 0]
            graph.add_grid_tedges(at, np.maximum(gain, 0), np.maximum(-gain, 0))
            flow = graph.maxflow()
            graph.get_grid_segments(at)
            return torch.tensor([most - flow])

        return values(call)

    name = f"graph cut, {V} superpixels: decode"
    yield Race(name, 1.5, best(build), {"PyMaxflow": pymaxflow})


def boxes(size: int) -> Iterator[Race]:
    cells = drawn(1, size, size) - 0.3
    cells[0, size // 5 : size // 2, size // 3 : 2 * size // 3] += 0.8

    def every(dtype: torch.dtype) -> Call:
        sums = np.zeros((size + 1, size + 1))
        sums[1:, 1:] = cells[0].to(dtype).double().numpy().cumsum(0).cumsum(1)
        empty = np.tri(size + 1, dtype=bool)

        def call() -> Tensor:
            top = -np.inf
            for i in range(size):
                for j in range(i + 1, size + 1):
                    columns = sums[j] - sums[i]
                    found = columns - columns[:, None]
                    found[empty] = -np.inf
                    top = max(top, found.max())
            return torch.tensor([top])

        return values(call)

    build = best(lambda dtype: partial(BoxSearch, cells.to(dtype)))
    name = f"boxes, {size} x {size}: decode"
    yield Race(name, 20, build, {"all boxes, in numpy": every})


def mixtures(strength: float) -> Iterator[Race]:
    nodes, moves = drawn(ROWS, 50, 9), drawn(9, 9, seed=1)

    def build(dtype: torch.dtype) -> Callable[[], Chain]:
        return partial(Chain, nodes.to(dtype), moves.to(dtype))

    name = f"SparseMAP, chain, 50 x 9, strength {strength}"
    ours = asked(lambda x: SparseMAP(x, strength=strength).maximum(), build)
    one = {"smoothsp, the best alone": asked(lambda x: x.decode()[0], build)}
    yield Race(f"{name}: in decodes", 1 / 40, ours, one, comparable=False)


def all_races() -> list[Race]:
    races: list[Race] = []
    for n in (10, 20, 40):
        races += trees(n)
    for n in (5, 20, 100):
        races += matchings(n)
    for size in (64, 256):
        races += images(size)
    for strength in (0.1, 1.0):
        races += mixtures(strength)
    return [*races, *superpixels(500), *boxes(200)]


if __name__ == "__main__":
    circuits.main(all_races, __file__, "searches", __doc__ or "")
