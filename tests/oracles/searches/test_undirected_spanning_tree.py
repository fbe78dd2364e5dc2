"""What undirected and labelled trees have besides the laws: others, sizes, messages."""

import networkx as nx
import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import CRFLoss
from smoothsp.oracles import (
    LabelledSpanningTree,
    SpanningTree,
    UndirectedSpanningTree,
)


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).double()


def drawn_graph(nodes, edges, seed=0):
    """A path through all nodes, and edges between any two, some of them twice."""
    generator = torch.Generator().manual_seed(seed)
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)], 1)
    pairs = torch.randint(nodes, (3 * edges, 2), generator=generator)
    return torch.cat([path, pairs[pairs[:, 0] != pairs[:, 1]][: edges - nodes + 1]])


def laplacian(edges, index):
    """Of edge weights ``exp(edges)``, without the row and column of node 0."""
    nodes = int(index.max()) + 1
    weights = edges.new_zeros(len(edges), nodes, nodes)
    start, end = index.unbind(1)
    row = torch.arange(len(edges))[:, None]
    for pair in ((start, end), (end, start)):
        weights = weights.index_put((row, *pair), edges.exp(), accumulate=True)
    return (torch.diag_embed(weights.sum(2)) - weights)[:, 1:, 1:]


def test_sums_are_determinants_and_the_best_tree_that_of_networkx():
    index = drawn_graph(20, 90)
    edges = drawn(3, 90).requires_grad_()
    built = UndirectedSpanningTree(edges, index)
    total, expected = built.log_partition(), laplacian(edges, index).logdet()
    assert_close(total, expected)
    for x, y in zip(
        torch.autograd.grad(total.sum(), edges),
        torch.autograd.grad(expected.sum(), edges),
        strict=True,
    ):
        assert_close(x, y)
    value, y = built.decode()
    for b in range(3):
        graph = nx.MultiGraph()
        for (start, end), weight in zip(index.tolist(), edges[b].tolist(), strict=True):
            graph.add_edge(start, end, weight=weight)
        best = nx.maximum_spanning_tree(graph).size(weight="weight")
        assert_close(value[b].item(), best)
    CRFLoss()(built, y).backward()


def test_a_graph_for_each_row_is_that_graph_alone():
    index, edges = drawn_graph(6, 12), drawn(2, 12)
    one = UndirectedSpanningTree(edges, index)
    two = UndirectedSpanningTree(edges, index.expand(2, 12, 2))
    for ask in ("log_partition", "marginals", "max_marginals"):
        assert_close(getattr(one, ask)(), getattr(two, ask)(), rtol=0, atol=0)
    index.fill_(0)
    assert_close(one.score(one.decode()[1]), one.decode()[0])


@pytest.mark.parametrize("size", [(0, 2), (2, 0), (0, 0)])
def test_sizes_of_0(size):
    built = UndirectedSpanningTree(
        torch.zeros(size), torch.tensor([[0, 1]]).expand(size[1], 2)
    )
    assert built.decode()[1].shape == size
    assert_close(built.log_count().exp(), torch.full(size[:1], float(max(size[1], 1))))
    assert built.sample(3).shape == (size[0], 3, size[1])


zeros = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([[0, 1]], "index: "),
        (
            [[0, 1], [1, 1], [1, 2]],
            r"index: expected two nodes .* got \[1, 1\] at row 0",
        ),
        ([[0, 1], [1, 4], [1, 2]], "index: "),
        ([[0, 1], [-1, 2], [1, 2]], "index: "),
        (
            [[0, 1], [0, 1], [2, 3]],
            "index: expected edges that join all nodes .* row 0",
        ),
    ],
)
def test_what_is_no_graph_is_refused(index, message):
    with pytest.raises(ValueError, match=message):
        UndirectedSpanningTree(zeros, torch.tensor(index))


@pytest.mark.parametrize("single_root", [False, True])
def test_labels_are_free_of_each_other_once_the_tree_is_known(single_root):
    arcs, lengths = drawn(3, 9, 9, 5).requires_grad_(), torch.tensor([8, 5, 1])
    options = {"lengths": lengths, "single_root": single_root}
    built = SpanningTree(arcs, **options)
    assert isinstance(built, LabelledSpanningTree)
    best = SpanningTree(arcs.amax(3), **options)
    assert_close(built.decode()[0], best.decode()[0])
    assert built.decode()[1][..., 0].equal(best.decode()[1])
    joined = SpanningTree(arcs.logsumexp(3), **options)
    assert_close(built.log_partition(), joined.log_partition())
    assert_close(built.marginals().sum(3), joined.marginals())
    values, ys, valid = built.decode_topk(30)
    assert valid[0].all() and (values[:, 1:] <= values[:, :-1]).all()
    assert len({tuple(y.flatten().tolist()) for y in ys[0]}) == 30
    CRFLoss()(built, ys[:, 0]).backward()


def test_one_label_is_none():
    arcs = drawn(2, 6, 6)
    one, none = SpanningTree(arcs[..., None]), SpanningTree(arcs)
    assert_close(one.log_partition(), none.log_partition())
    assert_close(one.entropy(), none.entropy())
    assert_close(one.decode_topk(7)[0], none.decode_topk(7)[0])
    with pytest.raises(TypeError, match="other: "):
        one.kl(none)


@pytest.mark.parametrize("size", [(0, 3, 2), (2, 1, 2), (2, 2, 1)])
def test_labelled_sizes_of_0_and_1(size):
    B, m, L = size
    built = SpanningTree(torch.zeros(B, m, m, L))
    assert built.decode()[1].shape == (B, m - 1, 2)
    assert built.decode_topk(2)[1].shape == (B, 2, m - 1, 2)
    assert built.log_count().shape == (B,)
    assert built.sample(2).shape == (B, 2, m - 1, 2)


def test_rare_trees_are_drawn_after_the_likely_one():
    arcs = torch.full((1, 3, 3), -torch.inf).double()
    # trees [0, 0], [0, 1] and [2, 0], of scores 0, -900 and -2000
    arcs[0, 0, 1] = arcs[0, 0, 2] = 0
    arcs[0, 1, 2], arcs[0, 2, 1] = -900, -2000
    ys = SpanningTree(arcs).sample(4, replace=False)
    assert ys.tolist() == [[[0, 0], [0, 1], [2, 0], [-1, -1]]]
