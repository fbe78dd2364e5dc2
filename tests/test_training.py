"""Training by ``fit``: against plain loops, cut, resumed, in two processes, misused."""

import copy
import functools
import json
import os
import pickle
import re
import sys
from operator import getitem

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

pytest.importorskip("pytorch_lightning")

from pytorch_lightning.callbacks import Callback, EarlyStopping
from pytorch_lightning.loggers import CSVLogger

from smoothsp import checkpoints
from smoothsp.training import Jointly, fit, seed_all
from tests.optim.test_resuming import ABSENT
from tests.programs import ROOT, run
from tests.recipes.runs import die, killed
from tests.sweeps import thinned

EXAMPLES, BATCH = 40, 4
STEPS = EXAMPLES // BATCH
TIMES = ("seconds", "cpu_seconds")


class Problem:
    """A small regression, whose network has dropout, and its parts for ``fit``."""

    def __init__(self, rate=0.05, kind=torch.optim.AdamW):
        torch.manual_seed(1)
        self.x, self.y = torch.randn(EXAMPLES, 3), torch.randn(EXAMPLES, 1)
        self.network = nn.Sequential(
            nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1)
        )
        self.optimizer = kind(self.network.parameters(), rate)
        self.steps = 0

    def loss(self, numbers):
        self.steps += 1
        return mse_loss(self.network(self.x[numbers]), self.y[numbers])

    def batches(self):
        return torch.randperm(EXAMPLES).split(BATCH)

    def evaluate(self):
        assert not self.network.training
        with torch.no_grad():
            return {"fit": -float(mse_loss(self.network(self.x), self.y))}

    def fit(self, **options):
        parts = self.network, self.loss, self.batches, self.evaluate
        given = {"monitor": "fit", "optimizer": self.optimizer, "epochs": 3}
        return fit(*parts, **given | options)

    def weights(self):
        return nn.utils.parameters_to_vector(self.network.parameters()).detach()


def untimed(history):
    return [{k: x for k, x in row.items() if k not in TIMES} for row in history]


def plain(epochs=3, seed=0, warm_up=0, rate=0.05, every=1):
    """Losses and averaged weights of each epoch, by a loop without Lightning."""
    problem = Problem(rate)
    network, average = problem.network, copy.deepcopy(problem.network)
    whole, step, updates, epoch_ends = epochs * STEPS // every, 0, 0, []
    for epoch in range(1, epochs + 1):
        network.train()
        seed_all(seed, epoch)
        losses = []
        for place, numbers in enumerate(problem.batches(), start=1):
            loss = problem.loss(numbers)
            losses.append(loss.item())
            (loss / every).backward()
            if place % every:
                continue
            (group,) = problem.optimizer.param_groups
            rise = min(1, (step + 1) / warm_up) if warm_up else 1
            group["lr"] = rate * rise * (1 - step / whole)
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            problem.optimizer.step()
            problem.optimizer.zero_grad()
            step += 1
            if step % min(8, STEPS // every) == 0 or step == whole:
                decay = min(0.96, (1 + updates) / (10 + updates))
                pairs = zip(average.parameters(), network.parameters(), strict=True)
                for mean, weight in pairs:
                    kept = decay * mean.data + (1 - decay) * weight.data
                    mean.data = kept if updates else weight.data.clone()
                updates += 1
        flat = nn.utils.parameters_to_vector(average.parameters()).detach()
        epoch_ends.append((sum(losses) / len(losses), flat))
    return epoch_ends


@pytest.mark.parametrize(
    ("warm_up", "every"), [(0, 1), (7, 1), pytest.param(5, 2, marks=pytest.mark.long)]
)
def test_training_is_that_of_a_plain_loop(warm_up, every, capsys):
    # counted in batches, of which a step takes several
    expected = plain(seed=5, warm_up=-(-warm_up // every), every=every)
    problem, scores = Problem(), []

    def evaluate():
        scores.append(problem.weights())
        return problem.evaluate() | {"other": None}

    trainer = {"accumulate_grad_batches": every}
    fitted = fit(
        *(problem.network, problem.loss, problem.batches, evaluate),
        **{"monitor": "fit", "optimizer": problem.optimizer, "epochs": 3},
        **{"seed": 5, "warm_up": warm_up, "trainer": trainer},
    )
    for (loss, weights), row, found in zip(
        expected, fitted.history, scores, strict=True
    ):
        assert row["loss"] == pytest.approx(loss, rel=1e-6)
        torch.testing.assert_close(found, weights)
    best = max(range(3), key=lambda n: fitted.history[n]["fit"])
    assert torch.equal(problem.weights(), scores[best])
    assert not problem.network.training and not fitted.interrupted
    assert [row["epoch"] for row in fitted.history] == [1, 2, 3]
    assert all(row[name] > 0 for row in fitted.history for name in TIMES)
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert not output.out and len(lines) == 3
    assert re.match(r"epoch  1/3  loss +0\.\d{4}  fit -\d\.\d+  \d\.\d s$", lines[0])


def test_rates_stay_without_a_warm_up_and_weights_without_an_average():
    problem, seen = Problem(kind=torch.optim.SGD), []

    class Rates(Callback):
        def on_train_batch_start(self, trainer, *_):
            seen.append(trainer.optimizers[0].param_groups[0]["lr"])

    trainer = {"callbacks": Rates()}
    problem.fit(epochs=1, warm_up=None, average=False, clip=None, trainer=trainer)
    assert set(seen) == {0.05}
    other = Problem(kind=torch.optim.SGD)
    seed_all(0, 1)
    for numbers in other.batches():
        other.optimizer.zero_grad()
        other.loss(numbers).backward()
        other.optimizer.step()
    torch.testing.assert_close(problem.weights(), other.weights())


@pytest.mark.parametrize(
    ("clip", "moved"), [(2.0, [2.0, 6.0]), (None, [9.0, 6.0]), (20.0, [9.0, 6.0])]
)
def test_gradients_are_clipped_but_for_groups_that_are_not(clip, moved):
    network = nn.ParameterList([torch.zeros(1), torch.zeros(1)])
    slopes = 9.0, 6.0
    groups = [{"params": [p], "clip": n == 0} for n, p in enumerate(network)]
    fit(
        network,
        lambda numbers: sum(
            a * p.sum() + 30 for a, p in zip(slopes, network, strict=True)
        ),
        lambda: [torch.arange(1)],
        lambda: {"score": 0.0},
        **{"monitor": "score", "epochs": 1, "clip": clip, "warm_up": None},
        **{"optimizer": torch.optim.SGD(groups, 1.0), "average": False},
    )
    assert [-p.item() for p in network] == pytest.approx(moved)


def jointly(problem):
    first, last = problem.network[0], problem.network[3]
    return Jointly(
        torch.optim.Adagrad(first.parameters(), 0.1),
        torch.optim.AdamW(last.parameters(), 0.02),
    )


def test_several_optimizers_are_as_if_each_were_alone(tmp_path):
    problem, other = Problem(), Problem()
    problem.fit(optimizer=jointly(problem), epochs=1, average=False, out=tmp_path)
    parts = jointly(other).parts
    seed_all(0, 1)
    for step, numbers in enumerate(other.batches()):
        for part, rate in zip(parts, (0.1, 0.02), strict=True):
            part.param_groups[0]["lr"] = rate * (1 - step / STEPS)
        other.loss(numbers).backward()
        for part in parts:
            nn.utils.clip_grad_norm_(part.param_groups[0]["params"], 5.0)
            part.step()
            part.zero_grad()
    torch.testing.assert_close(problem.weights(), other.weights())
    (state,) = checkpoints.read(tmp_path / "checkpoint.ckpt")["optimizer_states"]
    assert [len(one["state"]) for one in state["parts"]] == [2, 2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four epochs: its problem, its folder and its history."""
    out, problem = tmp_path_factory.mktemp("whole"), Problem()
    fitted = problem.fit(optimizer=jointly(problem), epochs=4, out=out)
    return problem, out, untimed(fitted.history)


def interrupt():
    raise KeyboardInterrupt


def stopped_at(step, press=interrupt):
    """A problem that is cut in this step."""
    problem = Problem()
    honest = problem.loss

    def loss(numbers):
        if problem.steps == step:
            press()
        return honest(numbers)

    problem.loss = loss
    return problem


def resumed(out, **options):
    problem = Problem()
    given = {"optimizer": jointly(problem), "epochs": 4, "out": out, "resume": True}
    return problem, problem.fit(**given | options)


def same(found, whole, out):
    problem, fitted = found
    assert torch.equal(problem.weights(), whole[0].weights())
    assert untimed(fitted.history) == whole[2] and not fitted.interrupted
    for name, one in content(out).items():
        assert torch.equal(one, content(whole[1])[name]), name
    assert not list(out.rglob(".*.part"))


def content(out):
    found = checkpoints.read(out / "checkpoint.ckpt")
    return dict(checkpoints._named_tensors(found, "checkpoint"))


def test_ctrl_c_within_an_epoch_returns_the_best_and_the_run_goes_on(
    whole, tmp_path, capsys
):
    problem = stopped_at(2 * STEPS + 3)
    fitted = problem.fit(optimizer=jointly(problem), epochs=4, out=tmp_path)
    assert fitted.interrupted and untimed(fitted.history) == whole[2][:2]
    assert not problem.network.training
    score = max(row["fit"] for row in fitted.history)
    assert problem.evaluate()["fit"] == score
    assert "stopped after epoch 2; resume continues" in capsys.readouterr().err
    same(resumed(tmp_path), whole, tmp_path)


def test_ctrl_c_in_the_first_epoch_ends_the_program(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        stopped_at(3).fit(out=tmp_path)
    assert "stopped before the end of an epoch" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", thinned(["checkpoint", "model", "step"], 3))
def test_a_run_killed_at_any_moment_goes_on(place, whole, tmp_path, monkeypatch):
    problem = stopped_at(2 * STEPS + 1, die) if place == "step" else Problem()
    replace, left = os.replace, [2]

    def counted(source, target):
        left[0] -= 1
        return replace(source, target) if left[0] >= 0 else die()

    def save(about):
        if len(about["history"]) == 2 and place == "model":
            die()

    if place == "checkpoint":
        monkeypatch.setattr(os, "replace", counted)
    given = {"optimizer": jointly(problem), "epochs": 4, "out": tmp_path}
    killed(lambda: problem.fit(save=save, **given))
    monkeypatch.undo()
    for part in tmp_path.glob(".*.part"):
        # which the next run in the folder removes
        part.unlink()
    same(resumed(tmp_path), whole, tmp_path)


def test_a_finished_run_resumes_to_its_result(whole, tmp_path):
    problem, fitted = resumed(whole[1])
    assert torch.equal(problem.weights(), whole[0].weights())
    assert untimed(fitted.history) == whole[2]
    assert problem.steps == 0


def test_a_run_ends_when_it_is_out_of_patience(tmp_path):
    scores = [0.1, 0.5, 0.4, 0.5, 0.9]
    problem = Problem()
    problem.evaluate = lambda: {"fit": scores[problem.steps // STEPS - 1]}
    given = {"epochs": 5, "patience": 2, "out": tmp_path}
    history = problem.fit(**given).history
    assert [row["fit"] for row in history] == scores[:4]
    again = Problem()
    assert again.fit(**given, resume=True).history == history
    assert again.steps == 0
    assert torch.equal(again.weights(), problem.weights())


def test_the_model_is_saved_after_each_better_epoch(tmp_path):
    scores, saved = [0.1, 0.5, 0.4, 0.6], []
    problem = Problem()
    problem.evaluate = lambda: {"fit": scores[problem.steps // STEPS - 1]}
    problem.fit(epochs=4, save=lambda about: saved.append(len(about["history"])))
    assert saved == [1, 2, 4]


@pytest.mark.parametrize(
    ("monitor", "found"), [("fit", "'fit' of {'fit': nan}"), ("f1", "'f1' of {'fit")]
)
def test_the_score_that_chooses_must_be_a_number(monitor, found):
    problem = Problem()
    problem.evaluate = lambda: {"fit": float("nan")}
    with pytest.raises(ValueError, match=f"^monitor: .* finite score, got {found}"):
        problem.fit(monitor=monitor, epochs=1)


def test_callbacks_loggers_and_plugins_reach_the_trainer(tmp_path):
    class Told(Callback):
        rows = 0

        def on_validation_end(self, trainer, module):
            self.rows = len(module.history)
            assert trainer.callback_metrics["fit"] == module.history[-1]["fit"]

    told, logger = Told(), CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    problem = Problem()
    problem.evaluate = lambda: {"fit": 0.5}
    stop = EarlyStopping("fit", patience=2, mode="max")
    trainer = {"callbacks": [told, stop], "logger": logger, "log_every_n_steps": 1}
    fitted = problem.fit(epochs=6, trainer=trainer)
    assert len(fitted.history) == told.rows == 3
    rows = (tmp_path / "lightning_logs/version_0/metrics.csv").read_text().splitlines()
    assert {"fit", "loss"} < set(rows[0].split(","))
    assert len(rows) == 1 + 3 * STEPS + 3


@pytest.mark.parametrize(
    ("trainer", "error", "message"),
    [
        (
            {"device": 2},
            TypeError,
            r"^trainer: .*Trainer, got 'device', did you mean 'devices'",
        ),
        ({"max_epochs": 2}, ValueError, r"got 'max_epochs'\. Give epochs instead"),
        ({"val_check_interval": 5}, ValueError, r"got .val_check_interval"),
        ({"enable_checkpointing": True}, ValueError, r"Give out instead"),
    ],
)
def test_keywords_of_the_trainer_are_validated(trainer, error, message):
    with pytest.raises(error, match=message):
        Problem().fit(trainer=trainer)


@pytest.mark.parametrize(
    ("kind", "rate", "message"),
    [
        (torch.optim.SGD, 1e30, r"^loss: expected a finite number, got (inf|nan) with"),
        (
            torch.optim.AdamW,
            1e-3,
            r"^loss: expected at most 10 times the .* first epoch, got",
        ),
    ],
)
def test_divergence_is_one_sentence_and_the_checkpoint_stays(
    kind, rate, message, tmp_path
):
    problem = Problem(kind=kind)
    problem.fit(out=tmp_path)
    before = (tmp_path / "checkpoint.ckpt").read_bytes()
    problem = Problem(rate, kind)
    honest = problem.loss
    problem.loss = lambda numbers: honest(numbers) * 1.3**problem.steps
    with pytest.raises(
        ValueError, match=message + ".*the training diverged. Lower the"
    ):
        problem.fit(epochs=20, clip=None, warm_up=None, out=tmp_path / "other")
    assert (tmp_path / "checkpoint.ckpt").read_bytes() == before


# --- files ---


def test_a_full_disk_is_one_sentence_and_the_old_checkpoint_stays(
    whole, tmp_path, monkeypatch
):
    problem, sync, left = Problem(), os.fsync, [2]

    def full(number):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, os.strerror(28))
        sync(number)

    monkeypatch.setattr(os, "fsync", full)
    message = r"checkpoint.ckpt: expected to write [\d,]+ bytes, got No space left on"
    with pytest.raises(OSError, match=message):
        problem.fit(optimizer=jointly(problem), epochs=4, out=tmp_path)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.ckpt"]
    same(resumed(tmp_path), whole, tmp_path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=r"checkpoint.ckpt: expected to write .* bytes"):
        Problem().fit(out=tmp_path / "file" / "run")


def test_there_must_be_a_run_to_resume(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^resume: .*found no .*checkpoint"):
        Problem().fit(out=tmp_path, resume=True)


def test_a_run_goes_on_only_with_the_settings_it_began_with(whole, tmp_path):
    Problem().fit(out=tmp_path, settings={"size": 3})
    message = rf"^size: expected 3 as in the run to resume \({tmp_path}.*, got 4"
    with pytest.raises(ValueError, match=message):
        Problem().fit(out=tmp_path, settings={"size": 4}, resume=True)
    with pytest.raises(
        ValueError, match=r"^epochs: expected 4 as in the run to resume"
    ):
        resumed(whole[1], epochs=5)


class Code:
    def __reduce__(self):
        return os.mkdir, ("code was run",)


WRONG = [
    (("smoothsp",), ABSENT, "KeyError: 'smoothsp'"),
    (("smoothsp", "settings"), ABSENT, "KeyError: 'settings'"),
    (("smoothsp", "best"), {}, "best"),
    (("smoothsp", "best", "0.weight"), torch.zeros(9, 9), r"shape \(9, 9\)"),
    (("smoothsp", "history", 0, "loss"), "low", "'low'"),
    (("smoothsp", "history", 0, "epoch"), 3, "3"),
    (("smoothsp", "history"), None, "history"),
    (("state_dict",), ABSENT, "state_dict"),
    (("state_dict", "network.0.weight"), torch.zeros(1), r"shape \(1,\)"),
    (("current_model_state", "network.0.bias"), ABSENT, "bias"),
    (("averaging_state", "n_averaged"), ABSENT, "n_averaged"),
    (("averaging_state",), ABSENT, "averaging_state"),
    (("epoch",), 1, "4 epochs in its history of 4"),
    (("averaging_state", "n_averaged"), torch.zeros(3), "n_averaged"),
    (("optimizer_states",), [], "not enough values"),
    (("optimizer_states", 0, "parts"), [], "is shorter than"),
    (
        ("optimizer_states", 0, "parts", 1, "state", 0, "exp_avg"),
        torch.zeros(10**6),
        r"shape \(1000000,\)",
    ),
    (
        ("optimizer_states", 0, "parts", 0, "state", 0, "sum"),
        torch.full((4, 3), torch.nan),
        "NaN in 12 of 12",
    ),
    (("lr_schedulers",), ABSENT, "lr_schedulers"),
    (("lr_schedulers", 0, "last_epoch"), "1", "last_epoch"),
    (("loops",), ABSENT, "loops"),
    (("loops",), None, "TypeError: 'NoneType'"),
    (("loops", "fit_loop", "epoch_progress"), {}, "KeyError: 'current'"),
    (("loops", "fit_loop", "state_dict"), 3, "AttributeError"),
    (("epoch",), ABSENT, "epoch"),
    (("callbacks",), 3, "AttributeError: 'int'"),
]


@pytest.mark.parametrize(
    ("place", "value", "found"),
    WRONG,
    ids=[".".join(map(str, place)) for place, *_ in WRONG],
)
def test_an_edited_checkpoint_is_one_sentence(place, value, found, whole, tmp_path):
    path = tmp_path / "checkpoint.ckpt"
    state = checkpoints.read(whole[1] / "checkpoint.ckpt")
    inner = functools.reduce(getitem, place[:-1], state)
    if value is ABSENT:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    torch.save(state, path)
    edited = path.read_bytes()
    with pytest.raises(ValueError, match=found) as error:
        resumed(tmp_path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == edited


def test_a_damaged_or_foreign_checkpoint_is_one_sentence(whole, tmp_path):
    path = tmp_path / "checkpoint.ckpt"
    good = (whole[1] / "checkpoint.ckpt").read_bytes()
    weight = whole[0].network[0].weight.detach().numpy().tobytes()
    flipped = good.replace(weight, weight[::-1])
    assert flipped != good
    for bad in (b"", b"PK\x03\x04 cut", good[:-99], flipped):
        path.write_bytes(bad)
        message = f"^{path}: expected the checkpoint of a run, got .* Train again"
        with pytest.raises(ValueError, match=message):
            resumed(tmp_path)


def test_no_code_of_a_checkpoint_is_run(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint.ckpt"
    state = checkpoints.read(whole[1] / "checkpoint.ckpt") | {"hook": Code()}
    torch.save(state, path)
    with pytest.raises(ValueError, match="expected the checkpoint of a run"):
        resumed(tmp_path)
    path.write_bytes(pickle.dumps(Code()))
    with pytest.raises(ValueError, match="expected the checkpoint of a run"):
        resumed(tmp_path)
    assert not (tmp_path / "code was run").exists()


# --- processes ---

SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
from tests.recipes.runs import die
from tests.test_training import Problem, stopped_at, untimed

devices, out, *options = sys.argv[1:]
problem = Problem()
problem.network[2].p = 0.0
if os.environ.get("LOCAL_RANK") == "1" and "die" in options:
    problem = stopped_at(15, die)
    problem.network[2].p = 0.0
trainer = {"devices": int(devices), "accelerator": "cpu"}
try:
    fitted = problem.fit(
        epochs=3, out=Path(out), resume="resume" in options, trainer=trainer
    )
except Exception as error:
    sys.exit(f"error: {type(error).__name__}: {error}")
if not int(os.environ.get("LOCAL_RANK", 0)):
    print(json.dumps([untimed(fitted.history), problem.weights().tolist()]))
"""


@pytest.mark.long
def test_two_processes_train_as_one_and_go_on_when_one_was_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def done(devices, out, *options):
        command = sys.executable, script, devices, tmp_path / out, *options
        env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'recipes'}", "OMP_NUM_THREADS": "1"}
        return run(*command, env=env, cwd=tmp_path, check=False)

    one, two = (json.loads(done(n, f"{n}").stdout) for n in (1, 2))
    for a, b in zip(one[0], two[0], strict=True):
        assert b == pytest.approx(a, rel=1e-4)
    assert two[1] == pytest.approx(one[1], rel=1e-3, abs=1e-5)
    dead = done(2, "cut", "die")
    assert dead.returncode and not dead.stdout
    assert dead.stderr.splitlines()[-1] == (
        "error: ChildProcessError: trainer: expected 2 processes to the end, one of"
        " them ended before. Resume continues after the last epoch"
    )
    assert "Traceback" not in dead.stderr
    again = done(2, "cut", "resume")
    assert "resuming" in again.stderr
    assert json.loads(again.stdout) == two


def test_an_epoch_of_few_steps_is_averaged():
    problem = Problem()
    problem.batches = lambda: [torch.arange(2), torch.arange(2, 4)]
    start = problem.weights().clone()
    problem.fit(epochs=1)
    assert not torch.equal(problem.weights(), start)


def test_an_optimizer_with_other_tensors_goes_on(tmp_path):
    first, again = (Problem(kind=torch.optim.RMSprop) for _ in range(2))
    first.fit(out=tmp_path)
    again.fit(out=tmp_path, resume=True)
    assert torch.equal(first.weights(), again.weights())
