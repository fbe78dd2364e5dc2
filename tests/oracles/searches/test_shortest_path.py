"""Shortest paths: networkx, Lattice, positive scores, sizes, faults, messages."""

import itertools

import networkx as nx
import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import ShortestPath
from tests.truth.searches import shortest_path as truth

NONE = -torch.inf


def drawn_graph(nodes, arcs, seed=0):
    """A path through all nodes, and arcs between any two, both ways."""
    generator = torch.Generator().manual_seed(seed)
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)], 1)
    others = torch.randint(nodes, (arcs - nodes + 1, 2), generator=generator)
    return torch.cat([path, others])


def lengths_of(rows, arcs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, arcs, generator=generator, dtype=torch.float64)


def networkx_graph(index, lengths):
    """Of several arcs between the same nodes the shortest."""
    graph = nx.DiGraph()
    for (start, end), length in zip(index.tolist(), lengths.tolist(), strict=True):
        if start != end:
            known = graph.get_edge_data(start, end, {"length": length})["length"]
            graph.add_edge(start, end, length=min(known, length))
    return graph


def test_the_best_paths_are_those_of_networkx():
    index, lengths = drawn_graph(60, 300), lengths_of(4, 300)
    sources = torch.tensor([0, 3, 7, 50])
    value, y = ShortestPath(-lengths, index, sources, 59).decode()
    for b, source in enumerate(sources.tolist()):
        graph = networkx_graph(index, lengths[b])
        expected = nx.dijkstra_path_length(graph, source, 59, "length")
        assert_close(-value[b].item(), expected)
        ends = index[y[b] == 1].tolist()
        assert {source, 59} == set.symmetric_difference(
            *map(set, zip(*ends, strict=True))
        )


def test_the_k_best_are_those_of_networkx():
    index = drawn_graph(12, 60).unique(dim=0)
    lengths = lengths_of(2, len(index))
    values, ys, valid = ShortestPath(-lengths, index, 0, 11).decode_topk(200)
    assert valid.all()
    for b in range(2):
        assert len({tuple(y) for y in ys[b].tolist()}) == 200
        graph = networkx_graph(index, lengths[b])
        paths = nx.shortest_simple_paths(graph, 0, 11, "length")
        expected = [
            nx.path_weight(graph, path, "length")
            for path in itertools.islice(paths, 200)
        ]
        assert_close(-values[b], torch.tensor(expected, dtype=torch.float64))


def test_arcs_that_no_path_has_change_nothing():
    # back to the source, out of the target, to itself, nowhere, and from nowhere
    more = [[2, 0], [3, 1], [2, 2], [0, 7], [8, 3]]
    index = torch.tensor([*truth.GRAPH, *more])
    arcs = -lengths_of(1, len(index))
    values, ys, valid = ShortestPath(arcs, index, 0, 3).decode_topk(50)
    every = torch.tensor(truth.paths(truth.GRAPH, 0, 3))
    right = (every * arcs[:, : len(truth.GRAPH)]).sum(1).sort(descending=True).values
    assert int(valid.sum()) == len(right)
    assert_close(values[0, : len(right)], right)
    assert (ys[valid][:, len(truth.GRAPH) :] == 0).all()


def test_scores_of_a_price_at_each_node_may_be_positive():
    # prices leave the order of paths as it is, and make some arcs positive
    index, lengths = drawn_graph(20, 90), lengths_of(3, 90)
    price = 3 * lengths_of(3, 20, seed=1)
    gained = -lengths + price[:, index[:, 0]] - price[:, index[:, 1]]
    assert (gained > 0).sum() > 30
    plain, priced = (ShortestPath(x, index, 0, 19) for x in (-lengths, gained))
    found, expected = priced.decode_topk(40), plain.decode_topk(40)
    assert found[1].equal(expected[1])
    assert_close(found[0], expected[0] + price[:, :1] - price[:, 19:])
    assert priced.decode()[1].equal(plain.decode()[1])


def test_cycles_of_score_0_are_fine_whatever_their_sum_is_rounded_to():
    index = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 1], [2, 4]])
    for scores in ([0, 0.1, 0.2, -0.3, -1], [-1, 0.7, -0.6, -0.1, 2], [0, 0, 0, 0, 0]):
        arcs = torch.tensor([scores], dtype=torch.float64)
        value, y = ShortestPath(arcs, index, 0, 4).decode()
        assert y.tolist() == [[1, 1, 0, 0, 1]]
        assert_close(value, arcs[:, [0, 1, 4]].sum(1))


def test_a_cycle_that_no_path_can_meet_may_have_any_score():
    # through the source, out of the target, nowhere from the source, nowhere on
    index = [[0, 1], [1, 0], [1, 2], [2, 1], [3, 4], [4, 3], [4, 1], [1, 5], [5, 5]]
    built = ShortestPath(torch.ones(1, 9), torch.tensor(index), 0, 2)
    _, ys, valid = built.decode_topk(3)
    assert valid.tolist() == [[True, False, False]]
    assert ys[0, 0].tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("arcs", [[-1, 2, -1.5, -1], [1, 1, 1, NONE]])
def test_a_cycle_of_positive_score_is_refused(arcs):
    index = torch.tensor([[0, 1], [1, 2], [2, 1], [2, 3]])
    arcs = torch.tensor([[-1.0, -1, -1, -1], arcs])
    if arcs[1, 3] == NONE:
        # from there the target cannot be reached
        with pytest.raises(ValueError, match="arcs: row 1 has no feasible output"):
            ShortestPath(arcs, index, 0, 3)
        return
    with pytest.raises(ValueError, match="arcs: row 1 has a cycle of positive score"):
        ShortestPath(arcs, index, 0, 3)
    fine = ShortestPath(arcs.clamp(max=0), index, 0, 3)
    cost = torch.tensor([[0.0, 0, 0, 0], [0, 2, 0, 0]])
    with pytest.raises(ValueError, match="cost: row 1 has a cycle of positive score"):
        fine.augment(cost)
    with pytest.raises(ValueError, match="arcs: row 1 has a cycle of positive score"):
        torch.func.vmap(lambda x: ShortestPath(x, index, 0, 3).decode()[0])(arcs[None])


@pytest.mark.parametrize("B", [0, 1, 2])
def test_sizes_of_0_and_1(B):
    none, one = torch.zeros(0, 2, dtype=torch.int64), torch.tensor([[4, 2]])
    built = ShortestPath(torch.zeros(B, 0), none, 3, 3)
    assert built.decode()[0].tolist() == [0.0] * B
    assert built.decode_topk(2)[2].tolist() == [[True, False]] * B
    built = ShortestPath(torch.full((B, 1), -2.0), one.expand(B, 1, 2), 4, 2)
    assert built.decode()[0].tolist() == [-2.0] * B
    assert built.decode_topk(2)[1].tolist() == [[[1], [-1]]] * B
    big = torch.tensor([[10**17, 5], [5, 2**62]])
    assert ShortestPath(-torch.ones(B, 2), big, 10**17, 2**62).decode()[1].all()


def test_whoever_changes_the_index_changes_nothing():
    index = torch.tensor([[0, 1], [1, 2]])
    built = ShortestPath(-torch.ones(1, 2), index, 0, 2)
    index.fill_(0)
    assert built.index.tolist() == [[[0, 1], [1, 2]]]
    assert built.decode()[0].item() == -2


def test_a_path_and_a_cycle_beside_it_are_no_output():
    index = torch.tensor([[0, 1], [2, 3], [3, 2]])
    built = ShortestPath(-torch.ones(1, 3), index, 0, 1)
    assert built.score(torch.tensor([[1, 0, 0]])).item() == -1
    for y in ([1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 0], [2, 0, 0]):
        with pytest.raises(ValueError, match="y: "):
            built.score(torch.tensor([y]))


zeros = torch.zeros(2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((zeros[0], [[0, 1]], 0, 1), "arcs: "),
        ((zeros, [[0, 1]], 0, 1), "index: "),
        ((zeros, [[0, 1], [-1, 2]], 0, 1), r"index: expected two .*\[-1, 2\] .* arc 1"),
        ((zeros, [[0, 1], [-2, -2]], 0, 1), "index: "),
        ((zeros, [[0, 1], [2, 1]], 0, 2), "index: "),
        ((zeros, [[0, 1], [1, 0]], -1, 1), "source: "),
        (
            (zeros, [[0, 1], [1, 2]], 0, torch.tensor([2, 3])),
            "index: .* none from 0 to 3 at row 1",
        ),
        ((zeros, [[0, 1], [1, 2]], 0, torch.tensor([2])), "target: "),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    arcs, index, source, target = arguments
    with pytest.raises(ValueError, match=message):
        ShortestPath(arcs, torch.tensor(index), source, target)
