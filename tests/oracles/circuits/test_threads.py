"""Neither threads nor the rest of the batch change a bit of a row's answers."""

import pytest
import torch

from smoothsp._kernels.threads import ranges
from smoothsp.oracles import SemiMarkov, SpanTree

ROWS = 37  # three groups of lanes in float32, of which one is not full


def drawn(kind):
    """A ragged batch, and its potentials, those of the rows first."""
    draw = torch.Generator().manual_seed(7)
    lengths = torch.randint(6, (ROWS,), generator=draw)
    if kind == "span_tree":
        spans = 3 * torch.randn(ROWS, 5, 5, generator=draw)
        return lambda rows, x: SpanTree(x, lengths=lengths[rows]), [spans]
    segments = 3 * torch.randn(ROWS, 5, 3, 2, generator=draw)
    moves = torch.randn(2, 2, generator=draw)
    return lambda rows, *x: SemiMarkov(*x, lengths=lengths[rows]), [segments, moves]


def answers(kind, rows):
    """All of some rows: values, outputs, and gradients of potentials of the rows."""
    build, (own, *shared) = drawn(kind)
    own = own[rows].requires_grad_()
    built = build(rows, own, *shared)
    weight = torch.linspace(-1, 2, ROWS)[rows]
    values = built.log_partition(), built.entropy(), built.decode()[0]
    values += (built.marginals().square().flatten(1).sum(1),)
    gradients = [torch.autograd.grad((x * weight).sum(), own)[0] for x in values]
    k_best = built.decode_topk(3)
    seeds = torch.Generator().manual_seed(1)
    draws = built.sample(2, seeds) if len(rows) == ROWS else built.decode()[1]
    return [*values, *gradients, *k_best, built.decode()[1], draws]


@pytest.fixture
def many_pieces(monkeypatch):
    """Work of any size deserves all threads."""
    monkeypatch.setattr(ranges, "WORK_PER_THREAD", 1)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["span_tree", "semi_markov"])
def test_the_same_bits_on_any_number_of_threads(many_pieces, kind):
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(answers(kind, torch.arange(ROWS)))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("kind", ["span_tree", "semi_markov"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_bits_however_the_batch_is_cut(many_pieces, kind, threads):
    torch.set_num_threads(threads)
    whole = answers(kind, torch.arange(ROWS))[:-1]
    for rows in (torch.arange(1), torch.arange(3, 21), torch.tensor([36, 2, 17])):
        some = answers(kind, rows)[:-1]
        for a, b in zip(whole, some, strict=True):
            assert torch.equal(a[rows], b)


def test_shared_potentials_get_the_same_bits_on_any_number_of_threads(many_pieces):
    build, potentials = drawn("semi_markov")
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for x in potentials:
            x.requires_grad_()
        value = build(torch.arange(ROWS), *potentials).log_partition().sum()
        found.append(torch.autograd.grad(value, potentials))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)
