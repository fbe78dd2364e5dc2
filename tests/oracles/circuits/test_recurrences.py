"""Circuits that users write: recurrences whose steps share factors, and gradients."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Circuit, CircuitStructure, topology

STEPS = 12


def renewals(T, D):
    """``ways[t] = sum_d weight[d] ways[t - d]``, one definition at a time."""
    c = Circuit()
    extra, weight = c.leaves(1), c.shared(D)
    ways, answer = c.chart(T + 1), c.chart(1)
    ways[0] = c.ONE
    for t in range(1, T + 1):
        d = np.arange(1, min(D, t) + 1)
        c.define(ways[t], (weight[d - 1], ways[t - d]))
    c.multiply(answer[0], ways[T], extra[0])
    return c, answer


class Renewals(CircuitStructure):
    """Cuts of ``STEPS`` steps into pieces, scored by their lengths."""

    def __init__(self, extra, weight):
        built = topology(renewals, STEPS, len(weight))
        sizes = {"roots": built.root(0), "lengths": 0, "shape": (0,)}
        super().__init__(built, {"extra": extra}, {"weight": weight}, **sizes)


def by_recurrence(extra, weight):
    ways = [torch.zeros(())]
    for t in range(1, STEPS + 1):
        before = [weight[d] + ways[t - 1 - d] for d in range(min(len(weight), t))]
        ways.append(torch.stack(before).logsumexp(0))
    return extra[:, 0] + ways[-1]


@pytest.mark.parametrize("D", [1, 2, 5])
def test_definitions_with_factors_in_common_may_need_each_other(D):
    draw = torch.Generator().manual_seed(D)
    inputs = [torch.randn(3, 1, generator=draw), torch.randn(D, generator=draw)]
    for x in inputs:
        x.requires_grad_()
    found, expected = Renewals(*inputs).log_partition(), by_recurrence(*inputs)
    assert_close(found, expected)
    slopes = [torch.autograd.grad(x.sum(), inputs) for x in (found, expected)]
    assert_close(*slopes)


@pytest.mark.parametrize("weigh", ["sum", "mean", "weighted"])
def test_gradients_of_any_weights_of_the_rows(weigh):
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(3, 1, generator=draw), torch.randn(4, generator=draw)]
    for x in inputs:
        x.requires_grad_()
    weights = {"sum": [1.0] * 3, "mean": [0.25] * 3, "weighted": [0.5, 0.0, -2.0]}
    grad = torch.tensor(weights[weigh])
    values = Renewals(*inputs).log_partition(), by_recurrence(*inputs)
    slopes = [torch.autograd.grad(x, inputs, grad) for x in values]
    assert_close(*slopes)


def test_a_batch_without_rows_has_gradients():
    extra = torch.zeros(0, 1, requires_grad=True)
    Renewals(extra, torch.zeros(2)).log_partition().sum().backward()
    assert extra.grad.shape == (0, 1)


@pytest.mark.parametrize("name", ["score", "lengths", "shape"])
def test_potentials_do_not_hide_methods(name):
    built = topology(renewals, STEPS, 1)
    sizes = {"roots": built.root(0), "lengths": 0, "shape": (0,)}
    some = {"extra": torch.zeros(1, 1)}, {name: torch.zeros(1)}
    with pytest.raises(ValueError, match=f"potentials: '{name}'.*another name"):
        CircuitStructure(built, *some, **sizes)


WRONG = {
    "numpy": ((np.zeros((2, 1)), torch.zeros(2)), TypeError, "^extra: .* got ndarray"),
    "dtype": (
        (torch.zeros(2, 1), torch.zeros(2).double()),
        TypeError,
        "^weight: expected torch.float32 to match extra, got torch.float64",
    ),
    "leaves": (
        (torch.zeros(2, 3), torch.zeros(2)),
        ValueError,
        "^potentials: expected 1 leaves .* 2 shared ones, .* got 3 and 2; compare",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_kernels_read_no_potentials_that_differ_from_the_leaves(name):
    given, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        Renewals(*given)


def test_sizes_and_lengths_of_rows():
    built = topology(renewals, STEPS, 2)
    some = {"extra": torch.zeros(3, 1)}, {"weight": torch.zeros(2)}
    with pytest.raises(
        ValueError, match=r"^size: expected values from 0 to 0,.* got 1"
    ):
        built.root(torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"^size: expected values .* got -1"):
        built.root(-1)
    with pytest.raises(TypeError, match=r"^size: .* got list; .* torch.as_tensor"):
        built.root([0, 0])
    roots = built.root(torch.tensor([0, 0]))
    with pytest.raises(ValueError, match=r"^roots: expected \(batch,\) = \(3,\), got"):
        CircuitStructure(built, *some, roots=roots, lengths=0, shape=(0,))
    lengths = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"^lengths: expected \(batch,\) = \(3,\)"):
        CircuitStructure(built, *some, roots=0, lengths=lengths, shape=(0,))
