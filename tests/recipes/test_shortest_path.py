"""The recipe of predicted costs: a small run, its finding, files, what it refuses."""

import csv

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from decisions import linear_models, problems
from shortest_path import METHODS, Config, main

SMALL = {"sizes": (60,), "degrees": (1, 8), "noises": (0.0,), "seeds": 2}
SMALL |= {"steps": 60, "test": 200}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole small run: its configuration, and the means that come back."""
    config = Config(**SMALL, out=tmp_path_factory.mktemp("paths"))
    return config, main(config)


@pytest.mark.long
def test_a_small_run_has_the_finding_of_the_paper(run):
    config, means = run
    assert len(means) == 2 * len(METHODS)
    linear = [means[f"60, degree 1, noise 0, {m}"] for m in METHODS]
    assert max(linear) < 0.01
    plain, *others = (means[f"60, degree 8, noise 0, {m}"] for m in METHODS)
    assert others[0] < 0.6 * plain and all(0 < x < plain for x in others)
    assert (config.out / "regret.png").read_bytes()[:4] == b"\x89PNG"
    with (config.out / "regret.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * len(METHODS)
    mine = [float(x["regret"]) for x in rows if x["method"] == "spo+"]
    assert np.mean(mine[2:]) == pytest.approx(others[0], rel=1e-5)


def test_runs_side_by_side_are_those_of_each_alone():
    problem, sizes = problems.grid(), {"train": 40, "dev": 10}
    runs = [(2, 0.5, 1), (4, 0.0, 2)]
    both = problems.generate(problem, sizes, runs)
    for method in ("least-squares", "spo+", "interpolation"):
        found = linear_models.fit(method, problem, both, 6, 0, lambda: None)
        for i, one in enumerate(runs):
            alone = problems.generate(problem, sizes, [one])
            weights = linear_models.fit(method, problem, alone, 6, 0, lambda: None)
            assert_close(found[i], weights[0], rtol=1e-4, atol=1e-4)


def test_least_squares_are_least():
    problem = problems.knapsack()
    train = problems.generate(problem, {"train": 30}, [(4, 0.5, 0), (1, 0.0, 1)])[
        "train"
    ]
    x = linear_models.append_ones(train.features)
    weights = linear_models.least_squares(train)
    scale = train.scores.abs().mean((1, 2), keepdim=True)
    residual = x @ weights - train.scores / scale
    assert_close(x.mT @ residual, torch.zeros(2, 6, 20), rtol=0, atol=1e-4)
    assert_close(x[1] @ weights[1] * scale[1], train.scores[1])


def test_regret_is_that_of_the_decisions():
    problem = problems.grid()
    some = problems.generate(problem, {"test": 25}, [(2, 0.5, 3)])["test"]
    assert_close(some.regret(problem, some.scores), torch.zeros(1))
    predicted = torch.randn(some.scores.shape)
    chosen = problem.build(predicted[0]).decode()[1]
    spent = -(chosen * some.scores[0]).sum()
    best = -problem.build(some.scores[0]).decode()[0].sum()
    assert_close(some.regret(problem, predicted), ((spent - best) / best)[None])


def arrays(kind, n=40):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n, 3))
    numbers = 5 + features @ rng.normal(size=(3, 4)) + 0.1 * rng.normal(size=(n, 4))
    if kind == "knapsack":
        rest = {"weights": np.array([2, 3, 1, 2]), "capacity": 4}
        return {"features": features, "values": numbers, **rest}
    index = np.array([[7, 2], [7, 5], [5, 2], [7, 2]])
    rest = {"index": index, "source": 7, "target": 2}
    return {"features": features, "costs": numbers, **rest}


@pytest.mark.parametrize("kind", ["shortest-path", "knapsack"])
def test_files_of_ones_own_are_read(kind, tmp_path):
    np.savez(tmp_path / "own.npz", **arrays(kind))
    config = Config(kind, tmp_path / "own.npz", seeds=2, steps=4, out=tmp_path / "out")
    means = main(config)
    assert set(means) == {f"file, file, {method}" for method in METHODS}
    assert all(0 <= x < 0.1 for x in means.values())
    assert (tmp_path / "out" / "regret.png").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"costs": None},
            "own.npz: expected the arrays features, costs, index.* costs",
        ),
        ({"costs": np.ones((4, 4))}, r"own.npz: expected 40 rows in costs,.*\(4, 4\)"),
        ({"features": np.full((40, 3), np.nan)}, "expected finite numbers in features"),
        (
            {"features": np.ones((9, 3)), "costs": np.ones((9, 4))},
            "at least 10 examples",
        ),
        ({"target": 9}, "own.npz: index: expected a path from source to target"),
        ({"index": np.ones((2, 2))}, "own.npz: index: expected"),
        ({"source": np.array([object()])}, "own.npz: expected arrays of numpy.savez"),
    ],
)
def test_a_file_that_is_wrong_is_named(change, message, tmp_path):
    given = {k: v for k, v in (arrays("paths") | change).items() if v is not None}
    np.savez(tmp_path / "own.npz", **given)
    with pytest.raises(ValueError, match=message):
        main(Config(data=tmp_path / "own.npz", out=tmp_path / "out"))


def test_options_that_are_none_are_named(tmp_path):
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(ValueError, match=r"text.npz: expected arrays of numpy.savez"):
        main(Config(data=tmp_path / "text.npz", out=tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        main(Config(data=tmp_path / "none.npz", out=tmp_path / "a"))
    for name, value in (("degrees", (0,)), ("sizes", (7,)), ("seeds", 0), ("steps", 0)):
        with pytest.raises(ValueError, match=f"{name}: expected at least"):
            main(Config(**{name: value}, out=tmp_path / "a"))
    for name, value in (("degrees", (1, 1)), ("methods", ("spo+", "spo+"))):
        with pytest.raises(ValueError, match=f"{name}: expected different values"):
            main(Config(**{name: value}, out=tmp_path / "a"))
    with pytest.raises(ValueError, match="noises: expected at most 1, got 2"):
        main(Config(noises=(2.0,), out=tmp_path / "a"))
    assert not (tmp_path / "a").exists()
