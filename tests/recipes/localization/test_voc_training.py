"""Training of the localiser, by every optimizer."""

from typing import get_args

import numpy as np
import pytest
import torch

import voc_localization
from localization import report
from localization.training import Diverged, Method, Run, Settings, rank
from tests.sweeps import thinned
from voc_localization import load

METHODS = get_args(Method)
STEPS = {
    "sgd": {"lr": 1e-3, "t_0": 12},
    "sgd-sqrt": {"lr": 1e-3},
    "sgd-inv": {"lr": 5e-4},
    "svrg": {"lr": 1e-3, "mu": 1.0},
    "casimir-const": {"smoothness": 1000.0, "mu": 1.0},
    "casimir-adapt": {"lr": 1e-3, "mu": 2.0},
    "prox-linear": {"lr": 10.0, "smoothness": 1000.0, "mu": 1.0, "inner_epochs": 3},
    "bcfw": {},
}
EPOCHS = STEPS["prox-linear"]["inner_epochs"]
KINDS = [(method, "linear") for method in METHODS]
KINDS += [(method, "nonlinear") for method in METHODS if method != "bcfw"]


@pytest.fixture(scope="module")
def data(localise, tmp_path_factory):
    return load(localise(tmp_path_factory.mktemp("data")), torch.device("cpu"))


@pytest.fixture
def build(data, localise, tmp_path):
    """A network and its optimizer."""

    def run(method, scores="linear", seed=1, **changed):
        torch.manual_seed(seed)
        config = localise(tmp_path, scores=scores, **changed)
        network = voc_localization.network_of(config, data).scores
        settings = Settings(method, 0.1, method[:3] == "sgd", **STEPS[method])
        return Run(network, data.parts["train"], settings, seed)

    return run


def scores_of(scores, features, where):
    """The linear score, without anything of ours."""
    weight = scores.weight.detach() * scores.scale
    looks = np.einsum("bpc,pc->b", features.float().numpy(), weight.numpy())
    place = (where - scores.where_mean) * scores.where_scale
    return looks + (place * scores.where.detach()).sum(1).numpy()


def iou(one, other):
    left, top = np.maximum(one[:2], other[:2])
    right, bottom = np.minimum(one[2:], other[2:])
    both = max(right - left, 0) * max(bottom - top, 0)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (one, other)]
    return both / (sum(areas) - both)


@pytest.mark.parametrize(("method", "scores"), thinned(KINDS, 3, 1))
def test_every_optimizer_lowers_the_objective(method, scores, data, build):
    run = build(method, scores)
    first = run.record(data.parts["val"])["objective"]
    for _ in range(1 if method == "prox-linear" else 3):
        run.round()
    row = run.record(data.parts["val"])
    assert 0 <= row["objective"] < first
    assert run.best.keys() == run.shown.state_dict().keys()
    smooth = not method.startswith("sgd") and method != "bcfw"
    assert (row["exact"] is not None) == (row["mu"] is not None) == smooth
    if scores == "linear":
        assert first == pytest.approx(largest_cost(data.parts["train"]))


def largest_cost(images):
    """The objective at zero weights."""
    return np.mean([float(images.cost(i).max()) for i in range(len(images))])


def test_the_objective_is_the_mean_hinge_and_the_regulariser(data, build):
    run = build("svrg")
    run.round()
    images, total = data.parts["train"], 0.0
    for number, example in enumerate(images.examples):
        scores = scores_of(run.network, *images.inputs(number))
        boxes = images.boxes[number].double().numpy()
        true = np.array(example.box)
        label = max(range(len(boxes)), key=lambda y: iou(boxes[y], true))
        costs = [1 - iou(box, boxes[label]) for box in boxes]
        total += max(scores + costs) - scores[label]
    weights = sum(float(p.detach().square().sum()) for p in run.network.parameters())
    expected = total / len(images) + 0.1 / 2 * weights
    assert run.objective() == pytest.approx(expected, rel=1e-5)


def test_the_prediction_is_the_best_scored_box(data, build):
    run = build("svrg")
    run.round()
    images, right, ranked = data.parts["val"], [], []
    found = run.predict(images, 3)
    for number, example in enumerate(images.examples):
        scores = scores_of(run.network, *images.inputs(number))
        order = np.argsort(-scores, kind="stable")[:3]
        assert found[number][1].tolist() == order.tolist()
        box = images.boxes[number][order[0]].numpy()
        right.append(iou(box, np.array(example.box)) > 0.5)
        ranked.append((-scores[order[0]], right[-1]))
    metrics = run.evaluate(images)
    assert metrics["corloc"] == pytest.approx(np.mean(right))
    hits = np.cumsum([hit for _, hit in sorted(ranked)])
    precision = hits / np.arange(1, len(hits) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    gains = np.diff(hits, prepend=0) / len(hits)
    assert metrics["ap"] == pytest.approx(float((best * gains).sum()))


@pytest.mark.parametrize("method", METHODS)
def test_calls_are_counted_as_the_paper_counts_them(method, data, build):
    run = build(method, "nonlinear" if method == "prox-linear" else "linear")
    images = data.parts["train"]
    asked, question = [], run._question
    run._question = lambda *args: asked.append(args) or question(*args)
    run.round()
    n, epochs = len(images), EPOCHS if method == "prox-linear" else 1
    plain = method.startswith("sgd") or method == "bcfw"
    steps = 1 if plain else 2
    assert run.passes == steps * epochs
    further = run.calls["full"] + run.calls["objective"]
    # its certificates are of the iterate and of the average
    certified = 2 if method == "bcfw" else steps - 1
    assert run.calls["full"] == certified * epochs * n
    assert run.calls["objective"] == (2 * n if method == "prox-linear" else 0)
    assert run.passes * n + further == run.images_a_round
    assert len(asked) == (0 if method == "bcfw" else run.images_a_round)


def test_sgd_shows_the_weighted_mean_of_its_iterates(data, build):
    run = build("sgd")
    seen, update = [], run.average.update_parameters
    run.average.update_parameters = lambda network: (
        seen.append(network.weight.detach().clone()),
        update(network),
    )
    run.round()
    weights = torch.arange(1.0, len(seen) + 1)
    mean = sum(w * x for w, x in zip(weights, seen, strict=True)) / weights.sum()
    torch.testing.assert_close(run.shown.weight.detach(), mean)


def test_weights_that_diverge_say_which_number_to_change(build):
    run = build("sgd-sqrt", "nonlinear")
    for group in run.optimizer.param_groups:
        group["initial_lr"] = group["lr"] = 1e30
    message = r"sgd-sqrt: the scores diverged in round 0 with --lr .*: lower it"
    with pytest.raises(Diverged, match=message):
        run.round()
    run = build("casimir-const")
    for p in run.network.parameters():
        torch.nn.init.constant_(p, torch.inf)
    with pytest.raises(Diverged, match=r"in round 0 with --smoothness .*: raise it"):
        run.round()


def test_an_objective_that_grows_tenfold_says_so(build, data):
    run = build("sgd-sqrt")
    run.record(data.parts["val"])
    run.history[0]["objective"] /= 1e3
    run.round()
    with pytest.raises(Diverged, match="the objective diverged in round 1 with --lr"):
        run.record(data.parts["val"])


@pytest.mark.parametrize("method", thinned(METHODS, 4))
def test_a_resumed_run_equals_an_uninterrupted_one(method, data, build, tmp_path):
    scores = "nonlinear" if method == "prox-linear" else "linear"
    rounds = 1 if method == "prox-linear" else 2
    whole = build(method, scores)
    for _ in range(2 * rounds):
        whole.round()
        whole.record(data.parts["val"])
    half = build(method, scores)
    for _ in range(rounds):
        half.round()
        half.record(data.parts["val"])
    torch.save(half.state(), tmp_path / "state.pt")
    resumed = build(method, scores, seed=1)
    resumed.load(torch.load(tmp_path / "state.pt", weights_only=True))
    for _ in range(rounds):
        resumed.round()
        resumed.record(data.parts["val"])
    for one, other in zip(resumed.history, whole.history, strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}
    for state in ("best", "network"):
        for name, value in whole.state()[state].items():
            assert torch.equal(resumed.state()[state][name], value), name


def test_passes_of_another_epoch_are_named(build):
    run = build("bcfw")
    run.round()
    state = run.optimizer.state_dict()
    run.optimizer.load_state_dict(state)
    message = "passes: expected 1, as in the arrays, got 2"
    with pytest.raises(ValueError, match=message):
        run.optimizer.load_state_dict(state | {"passes": 2})


def test_the_weights_that_validate_best_are_reported(
    data, build, tmp_path, undrawn, monkeypatch
):
    run = build("sgd-sqrt", "nonlinear")
    corlocs = iter((0.2, 0.7, 0.7, 0.7, 0.1))
    ious = iter((0.9, 0.5, 0.6, 0.5, 0.9))
    weights = []
    with monkeypatch.context() as patch:
        answers = {"ap": 0.0}
        patch.setattr(
            run,
            "evaluate",
            lambda _: answers | {"corloc": next(corlocs), "iou": next(ious)},
        )
        for _ in range(5):
            run.record(data.parts["val"])
            weights.append(run.shown.weight.detach().clone())
            run.round()
    # CorLoc says more than overlap, and overlap more than the training objective
    result = report.write(tmp_path, {}, run, data.parts, "")
    assert result["best_round"] == 2
    assert torch.equal(run.shown.weight, weights[2])
    rows = run.history[2], run.history[2] | {"objective": 0.0}
    assert rank(rows[0]) < rank(rows[1])
