"""The callback against a loop by hand, and what it refuses of a trainer."""

import pytest
import torch
from torch.utils.data import DataLoader

from smoothsp.optim import SVRG, CasimirSVRG

pytestmark = [
    # Lightning advises on workers, loggers and devices that are not there
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error:.*expected equal losses at the snapshot"),
]

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def trained():
    """A module and how it is fitted; imports Lightning, which takes seconds."""
    pytest.importorskip("pytorch_lightning")
    from tests.lightning import trained

    return trained


def by_hand(module, batches, epochs=1, snapshot_batches=None):
    """The same run without Lightning; the loss of each step."""
    optimizer, losses = module.build(module.parameters()), []

    def closure(x):
        loss = (module.linear(x)[:, 0] - x[:, 0]).square().mean()
        loss.backward()
        return loss

    for _ in range(epochs):
        optimizer.snapshot(closure, snapshot_batches or batches)
        for batch in batches:
            loss = optimizer.step(lambda batch=batch: closure(batch), len(batch))
            losses.append(loss.item())
        optimizer.end_epoch()
    return optimizer, losses


def same(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(p, q) for p, q in pairs)


# --- right ---


@pytest.mark.parametrize(
    "build",
    [lambda p: SVRG(p, 0.1), lambda p: CasimirSVRG.const(p, 4.0, num_batches=5)],
    ids=["svrg", "casimir"],
)
def test_a_run_is_that_by_hand_and_logs_the_iterates_once(trained, build):
    module, twin = trained.Regression(build), trained.Regression(build)
    trainer = trained.fit(module, DataLoader(X, 4), epochs=2)
    optimizer, losses = by_hand(twin, X.split(4), epochs=2)
    assert same(module, twin)
    assert module.losses == losses
    assert trainer.optimizers[0].oracle_calls == optimizer.oracle_calls
    mean = pytest.approx(sum(losses[5:]) / 5)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert logged == {"loss": mean, "inner": mean}


def test_batches_of_the_full_gradient_are_those_that_steps_get(trained):
    module, twin = trained.Regression(shift=1.0), trained.Regression()
    trained.fit(module, DataLoader(X, 4))
    by_hand(twin, (X + 1).split(4))
    assert same(module, twin)


@pytest.mark.parametrize("limit", [2, 0.4])
def test_a_limit_on_a_fixed_order_is_one_on_the_full_gradient(trained, limit):
    module, twin = trained.Regression(), trained.Regression()
    trainer = trained.fit(module, DataLoader(X, 4), limit_train_batches=limit, epochs=2)
    by_hand(twin, X[:8].split(4), epochs=2)
    assert same(module, twin)
    assert trainer.optimizers[0].oracle_calls["full"] == 16


def test_a_limit_on_a_shuffled_loader_leaves_the_full_gradient_full(trained):
    module = trained.Regression(lambda p: CasimirSVRG.const(p, 4.0, num_batches=5))
    trainer = trained.fit(module, DataLoader(X, 4, shuffle=True), limit_train_batches=2)
    calls = trainer.optimizers[0].oracle_calls
    assert calls == {"full": 20, "iterate": 8, "snapshot": 8}


def test_workers_that_persist_still_feed_the_first_epoch(trained):
    loader = DataLoader(X, 4, num_workers=1, persistent_workers=True)
    module, twin = trained.Regression(), trained.Regression()
    trained.fit(module, loader, epochs=2)
    by_hand(twin, X.split(4), epochs=2)
    assert len(module.losses) == 10 and same(module, twin)


def test_full_gradients_are_of_the_precision_of_the_steps(trained):
    module, twin = trained.Regression(), trained.Regression()
    trainer = trained.fit(module, DataLoader(X, 20), precision="bf16-mixed")
    with torch.autocast("cpu", torch.bfloat16):
        loss = (twin.linear(X)[:, 0] - X[:, 0]).square().mean()
    loss.backward()  # differs from that of 32 bits by 1e-3
    found = trainer.optimizers[0].state[module.linear.weight]["full_gradient"]
    assert torch.equal(found, twin.linear.weight.grad)


def test_manual_optimization_keeps_its_own_closure(trained):
    class Manual(trained.Regression):
        def training_step(self, x):
            def closure():
                loss = (self.linear(x)[:, 0] - x[:, 0]).square().mean()
                self.manual_backward(loss)
                return loss

            self.optimizers().step(closure, num_examples=len(x))

    module, twin = Manual(), trained.Regression()
    module.automatic_optimization = False
    trainer = trained.fit(module, DataLoader(X, 4))
    optimizer, _ = by_hand(twin, X.split(4))
    assert same(module, twin)
    assert trainer.optimizers[0].oracle_calls == optimizer.oracle_calls


# --- refused ---


def accumulated_later():
    from pytorch_lightning.callbacks import GradientAccumulationScheduler

    return {"callbacks": [GradientAccumulationScheduler({0: 2})]}


def scaled():
    from pytorch_lightning.plugins import MixedPrecision

    scaler = torch.amp.GradScaler("cpu")
    return {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)]}


@pytest.mark.parametrize(
    ("message", "kind", "options"),
    [
        (
            "accumulate_grad_batches: expected 1 with SVRG, .* got 2",
            "Regression",
            lambda: {"accumulate_grad_batches": 2},
        ),
        (
            "accumulate_grad_batches: expected 1 with SVRG, .* got 2",
            "Regression",
            accumulated_later,
        ),
        (
            "gradient_clip_val: expected None .* got 0.5; lower lr instead",
            "Regression",
            lambda: {"gradient_clip_val": 0.5},
        ),
        ("no configure_gradient_clipping", "Clipped", dict),
        (
            "precision: expected a precision without a scaler .* use bf16-mixed",
            "Regression",
            scaled,
        ),
    ],
    ids=["accumulated", "accumulated later", "clipped", "clipped by hand", "scaled"],
)
def test_what_changes_single_gradients_raises(trained, message, kind, options):
    with pytest.raises(ValueError, match=message):
        trained.fit(getattr(trained, kind)(), DataLoader(X, 4), **options())


def test_a_module_without_the_loss_raises(trained):
    class Other(trained.Regression):
        loss = None

    message = "loss: expected the name of a method of Other .* got 'loss'"
    with pytest.raises(TypeError, match=message):
        trained.fit(Other(), DataLoader(X, 4))


@pytest.mark.filterwarnings("default:.*expected equal losses at the snapshot")
def test_a_loss_that_is_not_that_of_the_step_is_noticed(trained):
    class Other(trained.Regression):
        def training_step(self, x):
            return 2 * self.loss(x)

    with pytest.warns(UserWarning, match=r"\(in Lightning, loss\) may compute another"):
        trained.fit(Other(), DataLoader(X, 4))
