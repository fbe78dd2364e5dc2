"""What closures get wrong without a word: refused with the remedy, or made right."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from smoothsp.losses import L2, StructuralHinge
from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear
from smoothsp.oracles import Multiclass
from tests.optim.problems import ridge, seeded, squares, svrg_on

NO_GRADIENT = r"{}: expected a closure that calls backward\(\) on its loss"


def without_backward(w):
    return lambda batch: (batch[0] @ w - batch[1]).square().mean()


# --- backward() ---


def test_a_closure_without_backward_takes_no_full_gradient():
    problem = ridge()
    w, optimizer = svrg_on(problem)
    message = NO_GRADIENT.format("SVRG") + ", got one that leaves none of 1 parameters"
    with pytest.raises(RuntimeError, match=message):
        optimizer.epoch(without_backward(w), problem.batches(8))
    with pytest.raises(RuntimeError, match=message):
        optimizer.epoch(lambda batch: 1.0, problem.batches(8))


def test_a_closure_without_backward_makes_no_step():
    problem = ridge()
    w, optimizer = svrg_on(problem)
    batches = problem.batches(8)
    optimizer.snapshot(squares(w), batches)

    with pytest.raises(RuntimeError, match=NO_GRADIENT.format("SVRG")):
        optimizer.step(lambda: without_backward(w)(batches[0]))
    assert torch.equal(w.detach(), torch.zeros_like(w))


def test_a_batch_without_the_parameters_has_gradient_zero():
    w, other = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = SVRG([w], 0.5)

    def closure(batch):
        loss = (w if batch else other).sum()
        loss.backward()
        return loss

    optimizer.snapshot(closure, [1, 0])  # two examples
    optimizer.step(lambda: closure(0))
    assert_close(w.detach(), torch.tensor([-0.25]))


@pytest.mark.parametrize("inner", [None, torch.optim.SGD])
def test_prox_linear_needs_backward_on_the_loss_of_its_model(inner):
    network = nn.Linear(2, 1)
    x = torch.ones(3, 2)

    def optimizer():
        return ProxLinear(network, 1.0, inner=inner, smoothness=1.0)

    one = optimizer()
    with pytest.raises(RuntimeError, match=NO_GRADIENT.format("(CasimirSVRG|ProxL.*)")):
        one.step(lambda batch: one.model(batch).square().mean(), [x])

    def of_the_network(batch):
        loss = network(batch).square().mean()
        if torch.is_grad_enabled():
            loss.backward()
        return loss

    with pytest.raises(RuntimeError, match=r"expected the loss of optimizer\.model"):
        optimizer().step(of_the_network, [x])


# --- scaled losses ---


@pytest.mark.parametrize("where", ["snapshot", "step"])
def test_a_scaled_loss_raises(where):
    problem = ridge()
    w, optimizer = svrg_on(problem)
    batches = problem.batches(8)
    scaler = torch.amp.GradScaler("cpu")

    def scaled(batch):
        loss = (batch[0] @ w - batch[1]).square().mean() / 2
        scaler.scale(loss).backward()
        return loss

    if where == "step":
        optimizer.snapshot(squares(w), batches)
    message = r"gradients that a GradScaler scaled by 65536; call loss\.backward\(\)"
    with pytest.raises(RuntimeError, match=message):
        if where == "step":
            optimizer.step(lambda: scaled(batches[0]))
        else:
            optimizer.snapshot(scaled, batches)
    loss = (w * 1.0).sum()
    assert_close(scaler.scale(loss), loss * 65536)  # as before


# --- running statistics ---


def normed():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def closure(batch):
        loss = network(batch).square().mean()
        loss.backward()
        return loss

    return network, closure


def statistics(network):
    return [buffer.clone() for buffer in network[1].buffers()]


@pytest.mark.parametrize("kind", ["svrg", "casimir"])
def test_statistics_of_batch_norm_are_those_of_the_iterates(kind):
    network, closure = normed()
    twin, _ = normed()
    batches = list(torch.randn(4, 6, 3, generator=seeded()))
    params = network.parameters()
    if kind == "svrg":
        optimizer = SVRG(params, 0.1)
    else:
        optimizer = CasimirSVRG(params, 0.1, kappa=1.0)
    for _ in range(2):
        optimizer.snapshot(closure, batches)
        for batch in batches:
            # only what the iterates see moves the statistics
            twin.load_state_dict(network.state_dict())
            twin(batch)
            optimizer.step(lambda batch=batch: closure(batch))
            assert all(map(torch.equal, statistics(network), statistics(twin)))
        before = statistics(network)
        optimizer.end_epoch()
        assert all(map(torch.equal, statistics(network), before))


def test_statistics_of_a_candidate_that_is_taken_back():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    x = torch.randn(6, 3)
    optimizer = ProxLinear(network, 1e-6, inner=torch.optim.SGD, epochs=1)
    seen = []

    def closure(batch):
        loss = optimizer.model(batch).square().mean()
        loss.backward()
        return loss

    def objective(batch):
        seen.append(statistics(network))
        optimizer.model(batch)
        return len(seen)  # the candidate is always worse

    optimizer.step(closure, [x], objective)
    assert not optimizer.progress["accepted"]
    assert all(map(torch.equal, statistics(network), seen[1]))


# --- smoothing ---


def classification():
    generator = seeded()
    x = torch.randn(12, 4, generator=generator)
    return list(zip(x.split(4), x[:, :3].argmax(1).split(4), strict=True))


def test_a_smoothing_that_is_not_the_loss_s_raises():
    batches = classification()
    torch.manual_seed(0)
    network = nn.Linear(4, 3)
    hinge, other = StructuralHinge(L2(mu=1.0, k=3)), L2(mu=1.0, k=3)

    def closure(model):
        def call(batch):
            loss = hinge(Multiclass(model(batch[0])), batch[1])
            loss.backward()
            return loss

        return call

    options = {"smoothness": 4.0, "num_batches": 3, "weight_decay": 0.1}
    message = r"smoothing: {} expected the object that the loss is smoothed by, .*L2\("
    for chosen in (other, hinge.smoothing):
        optimizer = CasimirSVRG.const(network.parameters(), smoothing=chosen, **options)
        prox = ProxLinear(network, 1.0, smoothness=4.0, smoothing=chosen)
        if chosen is other:
            with pytest.raises(ValueError, match=message.format("CasimirSVRG")):
                optimizer.epoch(closure(network), batches)
            with pytest.raises(ValueError, match=message.format("ProxLinear")):
                prox.step(closure(prox.model), batches)
        else:
            optimizer.epoch(closure(network), batches)
            prox.step(closure(prox.model), batches)
        assert type(chosen) is L2


# --- randomness ---


@pytest.mark.parametrize(
    "draw",
    [
        lambda own: np.random.default_rng().normal(size=2),
        lambda own: torch.randn(2, generator=own).tolist(),
    ],
    ids=["numpy", "own generator"],
)
def test_random_numbers_that_are_not_replayed_are_noticed(draw):
    w, own = nn.Parameter(torch.ones(2)), seeded()
    # steps so short that no draw makes the loss grow tenfold
    optimizer = SVRG([w], 1e-4)

    def loss_of(noise):
        loss = (w * torch.tensor(noise)).sum().exp()
        loss.backward()
        return loss

    optimizer.snapshot(lambda: loss_of([1.0, 1.0]))
    with pytest.warns(UserWarning, match=r"draw them before the step, not in its clos"):
        optimizer.step(lambda: loss_of(draw(own)))
    # the remedy: drawn before the step, they are the same in both evaluations
    optimizer.snapshot(lambda: loss_of([1.0, 1.0]))
    full, before = optimizer.state[w]["full_gradient"], w.detach().clone()
    noise = draw(own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step(lambda: loss_of(noise))
    assert_close(w.detach(), before - 1e-4 * full)


# --- counting and logging ---


def test_another_closure_at_the_snapshot_leaves_the_first_to_count():
    problem = ridge()
    w, optimizer = svrg_on(problem)
    v, plain = svrg_on(problem)
    batches, counted = problem.batches(8), []

    def counting(batch):
        counted.append(len(batch[1]))
        return squares(w)(batch)

    for one, x in ((optimizer, w), (plain, v)):
        one.snapshot(squares(x), batches)
    for batch in batches:
        optimizer.step(
            lambda batch=batch: counting(batch),
            len(batch[1]),
            at_snapshot=lambda batch=batch: squares(w)(batch),
        )
        plain.step(lambda batch=batch: squares(v)(batch), len(batch[1]))
    assert counted == [8] * 5
    assert torch.equal(w, v) and optimizer.oracle_calls == plain.oracle_calls
