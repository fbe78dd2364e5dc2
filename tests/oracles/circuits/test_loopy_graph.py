"""Graphs with cycles: grids as chains of columns, trees, cuts, what is refused."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Chain, LoopyGraph, Tree


def drawn(B, V, S, index, seed=0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(B, V, S, generator=generator, dtype=torch.float64)
    size = (B, len(index), S, S)
    return nodes, torch.randn(size, generator=generator, dtype=torch.float64)


def test_a_grid_is_a_chain_of_its_columns():
    H, W = 3, 30
    at = torch.arange(H * W).reshape(W, H)
    down = torch.stack([at[:, :-1], at[:, 1:]], -1).reshape(-1, 2)
    right = torch.stack([at[:-1], at[1:]], -1).reshape(-1, 2)
    nodes, edges = drawn(2, H * W, 2, torch.cat([down, right]))
    graph = LoopyGraph(nodes, edges, torch.cat([down, right]))
    columns = torch.tensor(list(itertools.product(range(2), repeat=H)))
    own = nodes.reshape(2, W, H, 2)
    within = edges[:, : len(down)].reshape(2, W, H - 1, 2, 2)
    across = edges[:, len(down) :].reshape(2, W - 1, H, 2, 2)
    emissions = sum(own[:, :, h, columns[:, h]] for h in range(H))
    for h in range(H - 1):
        emissions = emissions + within[:, :, h, columns[:, h], columns[:, h + 1]]
    one, two = columns[:, None], columns[None]
    moves = sum(across[:, :, h, one[..., h], two[..., h]] for h in range(H))
    chain = Chain(emissions, moves)
    assert_close(graph.log_partition(), chain.log_partition())
    assert_close(graph.decode_topk(4)[0], chain.decode_topk(4)[0])
    assert_close(graph.entropy(), chain.entropy())
    value, y = graph.decode()
    assert_close(graph.score(y), value)


def test_without_cycles_it_is_a_tree_in_any_order():
    parents = torch.tensor([2, 2, -1, 1, -1])
    index = torch.tensor([[0, 2], [2, 1], [3, 1]])
    nodes, edges = drawn(3, 5, 4, index)
    tree = torch.zeros(3, 5, 4, 4, dtype=torch.float64)
    tree[:, 0], tree[:, 1] = edges[:, 0].transpose(1, 2), edges[:, 1]
    tree[:, 3] = edges[:, 2].transpose(1, 2)
    expected = Tree(nodes, tree, parents)
    found = LoopyGraph(nodes, edges, index)
    assert_close(found.marginals(), expected.marginals())
    assert torch.equal(found.decode()[1], expected.decode()[1])


def test_sizes_of_0_and_1():
    none = torch.zeros(0, 2, dtype=torch.int64)
    for B, V, S in ((0, 2, 2), (2, 0, 3), (2, 1, 3), (2, 3, 1)):
        built = LoopyGraph(torch.zeros(B, V, S), torch.zeros(B, 0, S, S), none)
        expected = torch.full((B,), float(S) ** V).log()
        assert_close(built.log_partition(), expected)
        assert built.decode()[1].shape == (B, V)


@pytest.mark.parametrize(
    ("nodes", "edges", "index", "named"),
    [
        ((2, 3), (2, 1, 3, 3), [[0, 1]], "nodes: "),
        ((2, 3, 0), (2, 1, 0, 0), [[0, 1]], "nodes: "),
        ((2, 3, 2), (2, 2, 2, 2), [[0, 1]], "edges: "),
        ((2, 3, 2), (2, 1, 2, 2), [[0, 3]], "index: "),
        ((2, 3, 2), (2, 1, 2, 2), [[1, 1]], "index: "),
        ((2, 3, 2), (2, 1, 2, 2), [0, 1], "index: "),
    ],
)
def test_wrong_arguments_are_named(nodes, edges, index, named):
    with pytest.raises(ValueError, match=named):
        LoopyGraph(torch.zeros(nodes), torch.zeros(edges), torch.tensor(index))


def test_a_graph_that_is_too_dense_says_what_to_use():
    index = torch.tensor([[i, j] for i in range(30) for j in range(i)])
    with pytest.raises(ValueError, match="use BinaryGraph"):
        LoopyGraph(torch.zeros(1, 30, 2), torch.zeros(1, len(index), 2, 2), index)
