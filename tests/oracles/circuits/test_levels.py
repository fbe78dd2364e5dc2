"""Plain torch, level by level, answers as the compiled loops do: every structure."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles._circuits import compiled, levels, questions
from tests.truth.circuits.cases import KINDS, draw

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
every_kind = pytest.mark.parametrize("kind", KINDS)
# seeds: ordinary scores; ties, with forbidden parts; large ones
every_seed = pytest.mark.parametrize("seed", range(3))


def answers(case):
    """What a structure answers, and the gradients of that."""
    case = case.leaves()
    built = case.structure()
    value, y = built.decode()
    found = {
        "value": value,
        "log_partition": built.log_partition(),
        "score": built.score(y),
        "entropy": built.entropy(),
        "marginals": built.marginals(),
    }
    potentials = tuple(case.potentials.values())
    slopes = torch.linspace(0.5, 2, len(value), dtype=torch.float64)
    for name, x in tuple(found.items()):
        total = (x * slopes.reshape(-1, *[1] * (x.dim() - 1))).square().sum()
        found[f"slope of {name}"] = torch.autograd.grad(
            total, potentials, retain_graph=True, materialize_grads=True
        )
    return y, found


@every_seed
@every_kind
def test_a_device_without_kernels_answers_as_the_cpu(kind, seed, monkeypatch):
    case = draw(kind, seed)
    y, expected = answers(case)
    monkeypatch.setattr(questions, "_on_cpu", lambda leaves: False)
    other, found = answers(case)
    for b in range(len(case)):
        assert_close(case.score(b, other[b]), case.score(b, y[b]), **CLOSE)
    if seed % 3 == 1:  # of tied maximisers another one may be found
        for answer in (found, expected):
            del answer["slope of value"], answer["slope of score"]
    assert_close(found, expected, **CLOSE)


@every_kind
def test_second_derivatives_are_those_of_the_compiled_loops(kind):
    built = draw(kind, 3).structure()
    leaves, asked = built._leaves(), built._asked
    generator = torch.Generator().manual_seed(0)
    along = leaves.map(
        lambda x: torch.randn(x.shape, generator=generator, dtype=x.dtype)
    )
    every = [True] * len((*leaves.own, *leaves.shared))
    value, means, moved = compiled.tangent(leaves, asked, along, every)
    rows = leaves.joined(), asked.topology, asked.roots, along.joined()
    again = levels.covariance(*rows)
    assert_close(again[:2], (value, means), **CLOSE)
    assert_close(compiled.split(again[2], leaves), moved, **CLOSE)


@every_kind
def test_a_batch_without_rows_has_no_answers(kind, monkeypatch):
    monkeypatch.setattr(questions, "_on_cpu", lambda leaves: False)
    built = draw(kind, 0).structure()
    none = built.select(torch.zeros(0, dtype=torch.int64))
    assert none.log_partition().shape == none.decode()[0].shape == (0,)
    assert none.marginals().shape[0] == len(none.decode()[1]) == 0
