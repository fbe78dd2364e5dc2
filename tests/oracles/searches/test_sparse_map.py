"""Sparse mixtures of chains: their own search finds what the search of any does."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import SparseMAP
from smoothsp.oracles import Chain
from smoothsp.oracles._chain import sparse_map


def chain(scale, *, rows=11, moves="shared", T=12, S=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return scale * torch.randn(shape, generator=generator, dtype=dtype)

    transitions = drawn(S, S) if moves == "shared" else drawn(rows, T - 1, S, S)
    if moves == "forbidden":
        transitions[:, :, 0, 1] = -torch.inf
    # holes, and a row without positions
    mask = torch.rand(rows, T, generator=generator) < 0.8
    mask[0], mask[1] = False, True
    potentials = drawn(rows, T, S), transitions, drawn(S), drawn(S)
    return Chain(*potentials, mask=mask)


def by_any(monkeypatch, *args, **options):
    """What the search finds that every structure has."""
    with monkeypatch.context() as patch:
        patch.setattr(sparse_map, "solve_sparse_map", lambda *_: None)
        return SparseMAP(*args, **options)


@pytest.mark.parametrize("moves", ["shared", "of each step", "forbidden"])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_the_mixture_is_that_of_the_search_of_any_structure(moves, scale, monkeypatch):
    built = chain(scale, moves=moves)
    found, expected = SparseMAP(built), by_any(monkeypatch, built)
    assert_close(found.marginals(), expected.marginals(), rtol=1e-9, atol=1e-9)
    assert_close(found.maximum(), expected.maximum())
    assert (found.gap <= 1e-9).all() and (found.weights.diff(dim=1) <= 0).all()
    assert (found.outputs[0] == -1).all() and found.weights[0, 0] == 1
    shown = found.marginals().sum(2)
    assert_close(shown, built.mask.to(shown), rtol=1e-12, atol=1e-12)


def test_there_are_as_many_slots_as_outputs_need(monkeypatch):
    built = chain(0.3)
    whole = SparseMAP(built)
    monkeypatch.setattr(sparse_map, "_SLOTS", 1)
    found = SparseMAP(built)
    assert whole.outputs.shape[1] > 4
    assert torch.equal(found.outputs, whole.outputs)
    assert torch.equal(found.weights, whole.weights)
    assert torch.equal(found.gap, whole.gap)


@pytest.mark.parametrize("ties", [False, True])
def test_mixtures_of_a_hundred_outputs_leave_nothing_to_gain(ties):
    built = chain(1.0, rows=4, T=50, S=9)
    if ties:
        built = Chain(built.emissions.round(), built.transitions.round())
    strength = 5.0
    found = SparseMAP(built, strength=strength)
    mixture = found.marginals()
    assert ((found.weights > 0).sum(1) > 80).any()
    # the best output when parts cost what the mixture uses of them
    best, _ = built.augment(-strength * mixture).decode()
    squares = mixture.square().sum((1, 2))
    gain = best - (found.maximum() - strength / 2 * squares)
    assert (gain <= 1e-9).all() and (found.gap <= 1e-9).all()


@pytest.mark.parametrize("most", [1, 3, 8])
def test_a_search_that_is_cut_short_says_by_how_much(most, monkeypatch):
    built = chain(0.3)
    found, whole = SparseMAP(built, max_outputs=most), SparseMAP(built)
    expected = by_any(monkeypatch, built, max_outputs=most)
    assert (found.weights > 0).sum(1).max() <= most
    assert_close(found.marginals(), expected.marginals(), rtol=1e-9, atol=1e-9)
    assert (whole.maximum() - found.maximum() <= found.gap + 1e-9).all()


def test_outputs_that_tie_are_no_end():
    # every output is best at first, and all are mixtures of two
    tied = Chain(torch.zeros(2, 40, 2).double(), torch.zeros(2, 2).double())
    found = SparseMAP(tied)
    assert_close(found.marginals(), torch.full((2, 40, 2), 0.5).double())
    assert found.outputs.shape[1] == 2
    # as many as a face can have, and one more that depends on them
    wide = Chain(torch.zeros(1, 1, 70).double(), torch.zeros(70, 70).double())
    found = SparseMAP(wide)
    assert_close(found.weights, torch.full((1, 70), 1 / 70).double())


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 1, 1)])
def test_no_rows_no_positions_no_choice(shape):
    built = Chain(torch.ones(shape), torch.zeros(shape[2], shape[2]))
    found = SparseMAP(built)
    assert found.outputs.shape == (shape[0], 1, shape[1])
    assert_close(found.weights, torch.ones(shape[0], 1))
    assert found.marginals().shape == shape
