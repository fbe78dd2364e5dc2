"""What trees have besides the laws of circuits: shapes, sizes, messages."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Chain, Tree


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).double()


@pytest.mark.parametrize("parents", [[-1, 0, 1, 2, 3], [1, 2, 3, 4, -1]])
def test_a_path_is_a_chain(parents):
    emissions, moves = drawn(3, 5, 4), drawn(4, 4)
    lengths = torch.tensor([5, 5, 5])
    away = parents[0] == -1  # from its root, the first node, or towards it
    edges = (moves if away else moves.T).expand(5, 4, 4)
    tree = Tree(emissions, edges, torch.tensor(parents))
    chain = Chain(emissions, moves, lengths=lengths)
    assert_close(tree.log_partition(), chain.log_partition())
    assert_close(tree.marginals(), chain.marginals())
    assert_close(tree.decode(), chain.decode())


def test_a_row_has_the_bits_that_it_has_alone_whatever_the_other_trees():
    n = 7
    generator = torch.Generator().manual_seed(0)
    parents = torch.stack(
        [
            torch.tensor([-1, *(int(torch.randint(v, ())) for v in range(1, n))])
            for _ in range(20)
        ]
    )
    nodes, edges = drawn(20, n, 3), drawn(n, 3, 3)
    together = Tree(nodes, edges, parents)
    for b in range(0, 20, 7):
        alone = Tree(nodes[b : b + 1], edges, parents[b])
        for ours, other in zip(together.decode(), alone.decode(), strict=True):
            assert_close(ours[b], other[0], rtol=0, atol=0)
        assert_close(together.marginals()[b], alone.marginals()[0], rtol=0, atol=0)
    draws = together.sample(2, generator)
    assert draws.shape == (20, 2, n)


def test_parents_that_change_later_change_nothing():
    parents, nodes, edges = torch.tensor([-1, 0, 0]), drawn(1, 3, 2), drawn(3, 2, 2)
    tree, y = Tree(nodes, edges, parents), torch.tensor([[0, 1, 1]])
    before = tree.score(y)
    parents.fill_(-1)
    assert_close(tree.score(y), before)
    assert tree.parents.tolist() == [[-1, 0, 0]]


@pytest.mark.parametrize("V", [0, 1, 2])
@pytest.mark.parametrize("B", [0, 1])
def test_small_sizes(B, V):
    nodes = drawn(B, V, 1).requires_grad_()
    tree = Tree(nodes, drawn(V, 1, 1), torch.full((V,), -1))
    value, y = tree.decode()
    assert_close(tree.score(y), value)
    assert tree.hamming(y).shape == nodes.shape
    assert tree.sample(2).shape == (B, 2, V)
    tree.log_partition().sum().backward()
    assert nodes.grad.isfinite().all()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"nodes": drawn(2, 3)}, ValueError, "nodes: "),
        ({"edges": drawn(2, 2, 2)}, ValueError, "edges: "),
        ({"edges": drawn(1, 3, 2, 2)}, ValueError, "edges: "),
        ({"edges": drawn(3, 2, 2).float()}, TypeError, "edges: "),
        ({"parents": torch.tensor([-1, 0])}, ValueError, "parents: "),
        ({"parents": torch.tensor([-1, 0, 0.5])}, TypeError, "parents: "),
        (
            {"parents": torch.tensor([-1, 0, 3])},
            ValueError,
            "parents: .* below 3, got 3 at row 0, node 2",
        ),
        (
            {"parents": torch.tensor([[-1, 0, 0], [-1, 2, 1]])},
            ValueError,
            "parents: expected a tree, got a cycle through node 1 at row 1",
        ),
        (
            {"lengths": torch.tensor([3, 2]), "parents": torch.tensor([2, 0, -1])},
            ValueError,
            "parents: .* below 2, got 2 at row 1, node 0",
        ),
    ],
)
def test_wrong_arguments_are_named(change, kind, message):
    right = {
        "nodes": drawn(2, 3, 2),
        "edges": drawn(3, 2, 2),
        "parents": torch.tensor([-1, 0, 0]),
    }
    with pytest.raises(kind, match=message):
        Tree(**{**right, **change})


@pytest.mark.parametrize("label", [-5, 2, 99, 2**40])
@pytest.mark.parametrize("node", range(3))
def test_a_label_that_is_no_state_is_refused_wherever_it_stands(label, node):
    tree = Tree(drawn(2, 3, 2), drawn(3, 2, 2), torch.tensor([-1, 0, 1]))
    y = torch.tensor([[0, 1, 0], [1, 1, 0]])
    y[1, node] = label
    for ask in (tree.score, tree.log_prob, tree.hamming):
        with pytest.raises(ValueError, match="y: "):
            ask(y)


def test_what_inference_mode_looked_at_has_gradients_later():
    nodes = drawn(2, 3, 2).requires_grad_()
    tree = Tree(nodes, drawn(3, 2, 2), torch.tensor([-1, 0, 1]))
    y = torch.tensor([[0, 1, 0], [1, 1, 0]])
    with torch.inference_mode():
        tree.hamming(y)
        tree.score(y)
    tree.score(y).sum().backward()
    assert_close(nodes.grad, torch.nn.functional.one_hot(y, 2).double())
