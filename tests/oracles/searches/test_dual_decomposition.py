"""Dual decomposition: what it says is exact is the maximum, and its bound is one."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from smoothsp._kernels.threads import ranges
from smoothsp.oracles import LoopyGraph
from smoothsp.oracles import approximate_by_dual_decomposition as ask

GRAPHS = {
    "ring": [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3)],
    "two edges between two nodes": [(0, 1), (1, 0), (2, 1), (2, 0)],
    "all pairs": list(itertools.combinations(range(5), 2)),
    "parts": [(0, 1), (3, 2), (2, 4), (4, 3)],
}


def drawn(seed, V, E, S, B=6, strength=1.0):
    draw = torch.Generator().manual_seed(seed)
    nodes = torch.randn(B, V, S, generator=draw, dtype=torch.float64)
    edges = torch.randn(B, E, S, S, generator=draw, dtype=torch.float64)
    return nodes, strength * edges


def scores(nodes, edges, index):
    """Of all labellings: ``[B, S^V]``."""
    _, V, S = nodes.shape
    ys = torch.tensor(list(itertools.product(range(S), repeat=V)))
    total = sum(nodes[:, v, ys[:, v]] for v in range(V))
    for e, (i, j) in enumerate(index.tolist()):
        total = total + edges[:, e, ys[:, i], ys[:, j]]
    return total


@pytest.mark.parametrize("strength", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", GRAPHS)
def test_exact_ones_are_the_maximum_and_no_labelling_is_above_the_bound(name, strength):
    index = torch.tensor(GRAPHS[name])
    V = int(index.max()) + 1
    for S in (2, 3):
        nodes, edges = drawn(S, V, len(index), S, strength=strength)
        nodes[0, 1, 0] = -torch.inf
        most = scores(nodes, edges, index).amax(1)
        above = torch.full((len(nodes),), torch.inf, dtype=torch.float64)
        for rounds in (1, 2, 5, 300):
            value, y, exact, bound = ask(nodes, edges, index, max_rounds=rounds)
            assert (bound <= above).all()
            assert (bound >= most - 1e-9).all()
            assert (value <= most + 1e-9).all()
            assert_close(value[exact], most[exact], rtol=1e-12, atol=1e-9)
            assert_close(bound[exact], most[exact], rtol=1e-12, atol=1e-9)
            assert nodes.gather(2, y[..., None]).isfinite().all()
            above = bound
        if strength == 0.3:
            assert exact.any()


def test_where_edges_form_no_cycle_all_is_exact_in_one_round():
    index = torch.tensor([[2, 1], [3, 2], [4, 0], [5, 2], [5, 6]])
    for S in (1, 2, 4):
        nodes, edges = drawn(S, 7, 5, S, strength=3.0)
        value, _, exact, bound = ask(nodes, edges, index, max_rounds=1)
        assert exact.all()
        most = LoopyGraph(nodes, edges, index).decode()[0]
        assert_close(value, most)
        assert_close(bound, most)


def test_the_bound_is_that_of_all_fractions():
    # each edge may be half in either state of agreement: the programme's maximum is 0
    index = torch.tensor([[0, 1], [1, 2], [2, 0]])
    value, _, exact, bound = ask(torch.zeros(1, 3, 2), -torch.ones(1, 3), index)
    assert (value.item(), bound.item(), exact.item()) == (-1, 0, False)


def test_gradients_mark_the_parts_of_the_labelling():
    index = torch.tensor(GRAPHS["ring"])
    nodes, edges = (x.requires_grad_() for x in drawn(1, 4, 5, 3))
    value, y, _, bound = ask(nodes, edges, index)
    value.sum().backward()
    assert torch.equal(nodes.grad.argmax(2), y)
    assert torch.equal(nodes.grad.sum(2), torch.ones(6, 4, dtype=torch.float64))
    used = edges.grad.flatten(2).argmax(2)
    assert torch.equal(used, 3 * y[:, index[:, 0]] + y[:, index[:, 1]])
    assert not bound.requires_grad


def test_the_same_bits_on_any_number_of_threads_and_of_rows(monkeypatch):
    monkeypatch.setattr(ranges, "WORK_PER_THREAD", 1)
    index = torch.tensor(GRAPHS["all pairs"])
    nodes, edges = (x.float() for x in drawn(3, 5, 10, 3))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(ask(nodes, edges, index))
    finally:
        torch.set_num_threads(before)
    assert found[0][0].dtype == torch.float32
    assert found[0][3].dtype == torch.float64
    alone = [ask(nodes[b : b + 1], edges[b : b + 1], index) for b in range(6)]
    found.append(tuple(torch.cat(x) for x in zip(*alone, strict=True)))
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            assert torch.equal(x, y)


def test_sizes_of_0_and_1():
    none = torch.zeros(0, 2, dtype=torch.int64)
    for B, V, S in ((0, 3, 3), (2, 0, 3), (2, 1, 3), (2, 3, 1), (0, 0, 1)):
        value, y, exact, bound = ask(torch.ones(B, V, S), torch.zeros(B, 0), none)
        assert value.tolist() == bound.tolist() == [V] * B
        assert y.shape == (B, V)
        assert exact.all()


PAIR = torch.tensor([[0, 1]])


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((torch.zeros(2, 3), torch.zeros(2, 1), PAIR), ValueError, "nodes: "),
        ((torch.zeros(1, 3, 0), torch.zeros(1, 1), PAIR), ValueError, "nodes: "),
        ((torch.zeros(1, 3, 3), torch.zeros(1, 2), PAIR), ValueError, "edges: "),
        ((torch.zeros(1, 2, 3), torch.zeros(1, 1), PAIR + 1), ValueError, "1 and 2 at"),
        ((torch.zeros(1, 3, 3), torch.zeros(1, 1), PAIR * 0), ValueError, "0 and 0 at"),
        ((torch.zeros(1, 3, 3), torch.zeros(1, 1), PAIR[0]), ValueError, "index: "),
        (
            (torch.full((1, 3, 3), torch.nan), torch.zeros(1, 1), PAIR),
            ValueError,
            "nodes: ",
        ),
        (
            (torch.full((1, 3, 3), -torch.inf), torch.zeros(1, 1), PAIR),
            ValueError,
            "nodes: row 0 has no feasible output",
        ),
        (
            (torch.zeros(1, 3, 3), torch.full((1, 1), -torch.inf), PAIR),
            ValueError,
            "edges: ",
        ),
        (
            (torch.zeros(1, 3, 3), torch.zeros(1, 1).double(), PAIR),
            TypeError,
            "edges: ",
        ),
        (
            (torch.zeros(1, 3, 3, device="meta"), torch.zeros(1, 1), PAIR),
            TypeError,
            "nodes: ",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, error, named):
    with pytest.raises(error, match=named):
        ask(*arguments)
