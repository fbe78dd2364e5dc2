"""Expansions: exact where they say so, else as good as any expansion makes them."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import approximate_by_alpha_expansion as expand

RING = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0], [1, 3]])
PATHS = torch.tensor([[2, 1], [3, 2], [4, 0]])


def drawn(seed, V, E, S, B=4, metric=False):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(B, V, S, generator=generator, dtype=torch.float64)
    if not metric:
        return nodes, torch.rand(B, E, generator=generator, dtype=torch.float64) * 2
    # less the distances of points, and something of each label
    points = torch.randn(B, E, S, 2, generator=generator, dtype=torch.float64)
    away = (points.unsqueeze(2) - points.unsqueeze(3)).norm(dim=-1)
    own = torch.randn(B, E, S, generator=generator, dtype=torch.float64)
    return nodes, own.unsqueeze(2) + own.flip(2).unsqueeze(3) - away


def scores(nodes, edges, index, ys):
    """Of all labellings ``[N, V]``: ``[B, N]``."""
    S = nodes.shape[2]
    if edges.dim() == 2:
        edges = edges[..., None, None] * torch.eye(S, dtype=edges.dtype)
    total = sum(nodes[:, v, ys[:, v]] for v in range(nodes.shape[1]))
    for e, (i, j) in enumerate(index.tolist()):
        total = total + edges[:, e, ys[:, i], ys[:, j]]
    return total


def every(S, V):
    return torch.tensor(list(itertools.product(range(S), repeat=V)))


@pytest.mark.parametrize("metric", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_no_expansion_improves_what_is_found(seed, metric):
    nodes, edges = drawn(seed, 4, 5, 3, metric=metric)
    value, y, exact = expand(nodes, edges, RING)
    assert not exact.any()
    all_of_them = every(3, 4)
    found = scores(nodes, edges, RING, all_of_them)
    for b in range(4):
        assert_close(
            value[b],
            scores(nodes[b : b + 1], edges[b : b + 1], RING, y[b : b + 1])[0, 0],
        )
        assert value[b] <= found[b].max() + 1e-9
        for a in range(3):
            near = ((all_of_them == y[b]) | (all_of_them == a)).all(1)
            assert value[b] >= found[b, near].max() - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_two_labels_and_forests_are_exact(seed):
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = drawn(seed, 4, 5, 2)
    value, _, exact = expand(nodes, edges, RING)
    assert exact.all()
    assert_close(value, scores(nodes, edges, RING, every(2, 4)).amax(1))
    nodes, _ = drawn(seed, 5, 3, 3)
    any_edges = torch.randn(4, 3, 3, 3, generator=generator, dtype=torch.float64)
    value, _, exact = expand(nodes, any_edges, PATHS)
    assert exact.all()
    assert_close(value, scores(nodes, any_edges, PATHS, every(3, 5)).amax(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_metric_may_be_rounded(dtype):
    generator = torch.Generator().manual_seed(0)
    steps = (torch.arange(4)[:, None] - torch.arange(4)).abs().to(dtype)
    weights = torch.rand(8, 3, 1, 1, generator=generator, dtype=dtype)
    nodes = torch.randn(8, 3, 4, generator=generator, dtype=dtype)
    edges = -weights * (0.1 * steps)
    value, y, _ = expand(nodes, edges, torch.tensor([[0, 1], [1, 2], [2, 0]]))
    found = scores(nodes, edges, torch.tensor([[0, 1], [1, 2], [2, 0]]), every(4, 3))
    for b in range(8):
        for a in range(4):
            near = ((every(4, 3) == y[b]) | (every(4, 3) == a)).all(1)
            assert value[b] >= found[b, near].max() - 1e-5


def test_gradients_mark_the_parts_of_the_labelling():
    nodes, edges = (x.requires_grad_() for x in drawn(1, 4, 5, 3))
    value, y, _ = expand(nodes, edges, RING)
    value.sum().backward()
    assert (
        torch.equal(nodes.grad.argmax(2), y)
        and nodes.grad.sum() == nodes.grad.amax(2).sum()
    )
    agree = y[:, RING[:, 0]] == y[:, RING[:, 1]]
    assert torch.equal(edges.grad, agree.double())


def test_sizes_of_0_and_1_and_forbidden_labels():
    none = torch.zeros(0, 2, dtype=torch.int64)
    for B, V, S in ((0, 3, 3), (2, 0, 3), (2, 1, 3), (2, 3, 1)):
        value, y, _ = expand(torch.ones(B, V, S), torch.zeros(B, 0), none)
        assert value.tolist() == [V] * B and y.shape == (B, V)
    nodes, edges = drawn(0, 4, 5, 3)
    nodes[:, :, 1] = -torch.inf
    value, y, _ = expand(nodes, edges * 100, RING)
    assert (y != 1).all() and value.isfinite().all()
    assert (y == y[:, :1]).all()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((torch.zeros(2, 3), torch.zeros(2, 1), torch.tensor([[0, 1]])), "nodes: "),
        ((torch.zeros(1, 3, 3), torch.zeros(1, 2), torch.tensor([[0, 1]])), "edges: "),
        ((torch.zeros(1, 3, 3), torch.zeros(1, 1), torch.tensor([[0, 3]])), "index: "),
        ((torch.zeros(1, 3, 3), torch.zeros(1, 1), torch.tensor([[1, 1]])), "index: "),
        (
            (
                torch.full((1, 3, 3), torch.nan),
                torch.zeros(1, 1),
                torch.tensor([[0, 1]]),
            ),
            "nodes: ",
        ),
        (
            (
                torch.zeros(1, 3, 3),
                torch.full((1, 1), -torch.inf),
                torch.tensor([[0, 1]]),
            ),
            "edges: ",
        ),
        ((torch.zeros(1, 4, 3), torch.full((1, 5), -1.0), RING), "edges: "),
        (
            (torch.full((1, 4, 3), 3e38), torch.zeros(1, 5), RING),
            r"nodes: expected numbers below 2\^40 .* at row 0, entry \[0, 0\]",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        expand(*arguments)
