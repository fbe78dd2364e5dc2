"""What a circuit answers on a device is what it answers on the CPU, gradients too."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from smoothsp.oracles import SemiMarkov
from smoothsp.oracles._circuits import cpu, cuda
from smoothsp.oracles._circuits.engine import BACKENDS
from smoothsp.oracles._inference import kernel_checks
from tests.on_device import DEVICE, needs_gpu
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, draw

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
every_kind = pytest.mark.parametrize("kind", thinned(KINDS, 3))
# Triton's interpreter takes seconds for each, and goes through the same loops: no
# variants of another kind.
INTERPRETED = [
    kind if kind == "formula" else pytest.param(kind, marks=pytest.mark.long)
    for kind in KINDS
    if not any(kind.startswith(f"{other}_") for other in KINDS)
]
# seeds: ordinary scores; ties, with forbidden parts; large ones
every_seed = pytest.mark.parametrize("seed", thinned(range(3), 3, 1))


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
    slopes = torch.linspace(0.5, 2, len(value), dtype=value.dtype, device=value.device)
    for name, x in tuple(found.items()):
        total = (x * slopes.reshape(-1, *[1] * (x.dim() - 1))).square().sum()
        found[f"slope of {name}"] = torch.autograd.grad(
            total, potentials, retain_graph=True, materialize_grads=True
        )
    return y, found


def compare(found, expected, case, **tolerance):
    """Hold answers, with the outputs that they are for, against those of the CPU."""
    (y, found), (near_y, expected) = found, expected
    for b in range(len(case)):
        scores = [case.score(b, x[b].cpu()) for x in (y, near_y)]
        assert_close(*scores, **tolerance)
    if not torch.equal(y.cpu(), near_y):  # of tied maximisers another one
        for answer in (found, expected):
            del answer["slope of value"], answer["slope of score"]
    assert_close(found, expected, check_device=False, **tolerance)


@pytest.fixture
def failed(monkeypatch):
    """A device whose kernels failed their check."""
    monkeypatch.setitem(BACKENDS, "cpu", cuda)
    monkeypatch.setattr(kernel_checks, "checks_enabled", lambda near: True)
    monkeypatch.setattr(kernel_checks, "_failed", True)


@every_seed
@every_kind
def test_the_cpu_replaces_loops_that_failed(kind, seed, failed, monkeypatch):
    case = draw(kind, seed)
    found = answers(case)
    monkeypatch.setitem(BACKENDS, "cpu", cpu)
    compare(found, answers(case), case, **CLOSE)


# PyTorch's own, once, when forward derivatives are first taken
@pytest.mark.filterwarnings("ignore:.torch.jit.script.:FutureWarning")
def test_transforms_take_the_answers_of_the_cpu(failed, monkeypatch):
    segments = torch.linspace(-1, 1, 36).double().view(2, 3, 2, 3)

    def value(x):
        return SemiMarkov(x[None], moves).log_partition().sum()

    moves = torch.eye(3).double()
    transforms = torch.func.hessian(value), torch.func.vmap(torch.func.grad(value))
    found = transforms[0](segments[0]), transforms[1](segments)
    monkeypatch.setitem(BACKENDS, "cpu", cpu)
    expected = transforms[0](segments[0]), transforms[1](segments)
    assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("tried", [True, False])
def test_nothing_is_copied_while_a_graph_is_captured(tried, monkeypatch):
    built = draw("knapsack", 0).structure()
    monkeypatch.setitem(BACKENDS, "cpu", cuda)
    monkeypatch.setattr(kernel_checks, "checks_enabled", lambda near: tried)
    monkeypatch.setattr(kernel_checks, "_failed", tried)
    monkeypatch.setattr(kernel_checks, "is_capturing", lambda near: True)
    why = r"the CPU, since a GPU kernel failed its check;" if tried else "the CPU;"
    message = rf"torch.cuda.graph: expected .* got one that runs on {why} call it out"
    for ask in (built.log_partition, built.decode)[: 2 * tried]:
        with pytest.raises(RuntimeError, match=message):
            ask()
    with pytest.raises(RuntimeError, match=message):
        built.entropy()


@pytest.mark.parametrize("kind", INTERPRETED)
def test_the_loops_of_a_device_answer_as_those_of_the_cpu(kind, monkeypatch):
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("Triton's interpreter is not on: the tests of devices see this")
    case = draw(kind, 1)
    expected = answers(case)
    monkeypatch.setitem(BACKENDS, "cpu", cuda)
    found = answers(case)
    assert torch.equal(found[0], expected[0])
    compare(found, expected, case, **CLOSE)


@every_kind
def test_a_batch_without_rows_has_no_answers(kind, failed):
    built = draw(kind, 0).structure()
    none = built.select(torch.zeros(0, dtype=torch.int64))
    assert none.log_partition().shape == none.decode()[0].shape == (0,)
    assert none.marginals().shape[0] == len(none.decode()[1]) == 0


def there(case):
    """The case with every tensor on the device."""
    options = {
        name: x.to(DEVICE) if isinstance(x, Tensor) else x
        for name, x in case.options.items()
    }
    return replace(case.map(lambda x: x.to(DEVICE)), options=options)


def on_a_gpu(test):
    for mark in needs_gpu:
        test = mark(test)
    return test


@on_a_gpu
@every_seed
@every_kind
def test_a_gpu_answers_as_the_cpu(kind, seed):
    case = draw(kind, seed)
    compare(answers(there(case)), answers(case), case, **CLOSE)


@on_a_gpu
@every_kind
def test_a_gpu_answers_as_the_cpu_in_float32(kind):
    case = draw(kind, 0).map(lambda x: x.float())
    compare(answers(there(case)), answers(case), case, rtol=1e-4, atol=1e-4)


@on_a_gpu
@every_kind
def test_what_a_gpu_asks_the_cpu_for_comes_back(kind):
    case = draw(kind, 1)
    near, far = case.structure(), there(case).structure()
    for found, expected in zip(far.decode_topk(3), near.decode_topk(3), strict=True):
        assert found.device == DEVICE
        assert_close(found.cpu(), expected, rtol=0, atol=0)
    draws = far.sample(20, torch.Generator(DEVICE).manual_seed(0))
    assert draws.device == DEVICE
    for b in range(len(case)):
        for y in draws[b].cpu():
            case.index(b, y)


@on_a_gpu
def test_two_runs_on_a_gpu_give_the_same_bits():
    case = there(draw("projective", 0))
    _, first = answers(case)
    _, second = answers(case)
    assert_close(first, second, rtol=0, atol=0)


def test_marginals_that_are_views_are_weighed_once():
    weights = torch.tensor([2.0, 3.0])
    marginals = [torch.ones(2, 3), torch.ones(3, 2).t()]
    engine = SemiMarkov(torch.zeros(2, 1, 1, 2))._engine
    engine.num_row_potentials = 2
    for found in engine.vjp(weights, marginals, (True, True)):
        assert_close(found, weights[:, None].expand(2, 3))
