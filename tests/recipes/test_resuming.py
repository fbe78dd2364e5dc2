"""One contract for all recipes: a run that is cut goes on, bit for bit.

Cut as a checkpoint is about to take the place of the one before: by Ctrl-C, and by
kill -9. All that the resumed run leaves is compared, but for how long it took.
"""

import csv
import dataclasses
import functools
import importlib
import json
import os
import re
import shutil
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import conll_ner
import matching_points
from linear_tagging import data as linear_data
from pose import synthetic
from smoothsp.models import load
from smoothsp.models.box_images import SingleObjectImages
from smoothsp.training import StructuredModule
from tests.programs import run
from tests.recipes.running.test_run_folder import SAVING
from tests.recipes.runs import die, killed, write_set
from tests.sweeps import thinned


class Run(NamedTuple):
    """A small run: after how many checkpoints it is cut, and its options.

    ``others`` are settings with which it does not go on, and what the message names.
    """

    after: int
    others: list[tuple[str, Any, str]]
    options: dict[str, Any]


def cut(after, *others, **options):
    others = [one if len(one) == 3 else (*one, one[0]) for one in others]
    return Run(after, others, options)


NETWORK = {"model": "network", "limit": 8, "superpixels": 40, "epochs": 2}
RUNS = {
    "conll_ner": cut(
        2,
        *(("loss", "crf"), ("mu", 2.0), ("top_k", 7), ("epochs", 9), ("seed", 2)),
        epochs=3,
    ),
    "constituency": cut(1, ("held_out", 2, "data"), epochs=2, hidden=20),
    "ud_parser": cut(
        1,
        *(("loss", "hinge"), ("hidden", 31), ("structure", "sibling")),
        **{"epochs": 2, "hidden": 30},
    ),
    "pose_tree": cut(1, ("loss", "softmax"), epochs=2),
    "matching_points": cut(
        1,
        *(("points", 7, "data"), ("loss", "softmax"), ("seed", 2)),
        **{"epochs": 2, "points": 8, "features": "orb"},
    ),
    "horse_segmentation": cut(
        2,
        *(("limit", 7, "data"), ("eps", 0.2), ("seed", 2), ("cost", "pixels")),
        **{"limit": 8, "superpixels": 40, "eps": 0.3, "tol": 0.1},
    ),
    "horse_segmentation, hinge": cut(1, ("loss", "cross-entropy"), **NETWORK),
    "horse_segmentation, cross-entropy": cut(
        1, ("epochs", 3), loss="cross-entropy", **NETWORK
    ),
    "voc_localization": cut(
        2,
        *(("max_boxes", 30), ("seed", 2), ("k", 3), ("optimizer", "svrg")),
        *(("scores", "nonlinear"), ("smoothness", 7.0), ("decay", 7.0)),
        epochs=3,
    ),
    "shortest_path": cut(
        2,
        *(("steps", 5), ("degrees", (1,))),
        **{"sizes": (60,), "degrees": (1, 8), "noises": (0.0,), "seeds": 2},
        **{"steps": 20, "test": 50},
    ),
    "multiclass_svm": cut(
        3,
        *(("seed", 1), ("tolerances", (0.09,))),
        **{"log2_c": (-2, 0), "tolerances": (0.09, 0.009), "limit": 1e9},
    ),
    "ocr_words": cut(
        3,
        *(("drawn", 30, "data"), ("tol", 0.1), ("max_passes", 9)),
        **{"lam": (0.05,), "tol": 1e-2, "max_passes": 10, "drawn": 20},
        **{"settings": ("small",), "max_seconds": 1e9},
    ),
    "conll_linear": cut(
        2,
        *(("calls", 2), ("hashing", 63, "data"), ("bound_passes", 9)),
        **{"study": ("smoothing",), "c": (1.0,), "calls": 4, "seeds": (0,)},
        **{"bound_passes": 20, "hashing": 127},
    ),
}


IMAGES = ("pose", "horse", "voc")  # whose networks take seconds
CASES = [
    pytest.param(name, marks=pytest.mark.long) if name.startswith(IMAGES) else name
    for name in RUNS
]


@pytest.fixture(scope="module", autouse=True)
def small():
    """Few people, images and sentences."""
    few = {"train": 24, "dev": 6, "test": 6}
    load = linear_data.load

    def fewer(*given):
        return tuple(
            linear_data.Split(part.tokens[:25], part.tags[:25]) for part in load(*given)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "SIZES", few)
        patch.setattr(matching_points, "DRAWN", {"train": 2, "dev": 1, "test": 1})
        patch.setattr(linear_data, "load", fewer)
        yield


@pytest.fixture(scope="module")
def whole(tiny, few, bank, localise, tmp_path_factory):
    """A whole run of a recipe: its main(), its configuration, and what came back."""
    data = {
        "conll_ner": {"data": tiny},
        "constituency": {"data": few, "held_out": 1},
        "ud_parser": {"data": bank},
    }

    @functools.cache
    def run(name):
        own, out = RUNS[name], tmp_path_factory.mktemp("whole")
        recipe = importlib.import_module(name.partition(",")[0])
        if name == "voc_localization":
            config = localise(out, **own.options)
        else:
            given = data.get(name, {})
            if name == "multiclass_svm":
                given = {"data": (write_set(tmp_path_factory.mktemp("set")),)}
            config = recipe.Config(out=out, **given | own.options)
        return recipe.main, config, recipe.main(config)

    return run


def goes_on(config, out):
    """The same run in another folder, to be resumed."""
    return dataclasses.replace(config, out=out, resume=True)


# and without where it stands, as callbacks have it; the state of a path has seconds
TIMES = re.compile("seconds|ratio|^(out|resume|path|callbacks)$")


def untimed(found):
    """Without numbers that say how long something took."""
    if isinstance(found, dict):
        rows = found.get("history")
        if rows and isinstance(rows[0], list):  # passes, calls, seconds and gap
            found = found | {"history": [[*row[:2], row[3]] for row in rows]}
        return {k: untimed(x) for k, x in found.items() if not TIMES.search(str(k))}
    if isinstance(found, list | tuple):
        return [untimed(x) for x in found]
    return found.numpy() if isinstance(found, torch.Tensor) else found


def rows(path):
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


def kept(out):
    """The content of all files of a run but its figures."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.suffix == ".json":
            found[name] = untimed(json.loads(path.read_text()))
        elif path.suffix in (".pt", ".ckpt"):
            found[name] = untimed(torch.load(path, weights_only=True))
        elif path.suffix == ".csv":
            found[name] = untimed(rows(path))
        elif path.suffix in (".safetensors", ".conllu", ".txt"):
            found[name] = path.read_bytes()
        else:
            found[name] = "there"
    return found


def same(one, other):
    np.testing.assert_equal(kept(one), kept(other))


def checkpoints_until(after, press):
    """In place of os.replace: press() where one more checkpoint would be written."""
    replace, left = os.replace, [after]

    def counted(source, target):
        name = os.path.basename(target)
        if name in ("checkpoint.pt", "checkpoint.ckpt", "cells.json"):
            left[0] -= 1
            if left[0] < 0:
                press()
        replace(source, target)

    return counted


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", CASES)
def test_ctrl_c_keeps_what_is_done_and_the_run_goes_on(
    name, whole, tmp_path, monkeypatch, capsys
):
    main, config, result = whole(name)
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", checkpoints_until(RUNS[name].after, interrupt))
        with pytest.raises(KeyboardInterrupt):
            main(dataclasses.replace(config, out=tmp_path))
    assert "resume" in "".join(capsys.readouterr())
    assert not (tmp_path / "metrics.json").exists()
    assert untimed(main(goes_on(config, tmp_path))) == untimed(result)
    same(tmp_path, config.out)


# a network in plain runs, and a study
@pytest.mark.parametrize("name", thinned(RUNS, 9, 1))
def test_a_run_killed_while_it_writes_goes_on(name, whole, tmp_path, monkeypatch):
    main, config, result = whole(name)
    monkeypatch.setattr(os, "replace", checkpoints_until(RUNS[name].after, die))
    killed(lambda: main(dataclasses.replace(config, out=tmp_path)))
    monkeypatch.undo()
    assert untimed(main(goes_on(config, tmp_path))) == untimed(result)
    same(tmp_path, config.out)
    assert not list(tmp_path.rglob(".*.part"))


@pytest.mark.long
# The other recipes have tests of their own that compare what is learned with baselines.
def test_the_objective_falls_along_a_path(whole):
    _, config, _ = whole("horse_segmentation")
    history = json.loads((config.out / "metrics.json").read_text())["history"]
    assert 0 <= history[-1]["primal"] < 0.98 * history[0]["primal"]


def test_the_objective_of_each_solver_falls(whole):
    _, config, _ = whole("conll_linear")
    found = {}
    for row in rows(config.out / "smoothing.csv"):
        found.setdefault(row["method"], []).append(float(row["F"]))
    assert len(found) == 4
    assert all(0 <= values[-1] < 0.98 * values[0] for values in found.values())


@pytest.mark.parametrize("name", thinned(RUNS, 9, 1))
def test_a_finished_run_resumes_to_its_report(name, whole):
    main, config, result = whole(name)
    again = main(goes_on(config, config.out))
    assert untimed(again) == untimed(result)


@pytest.mark.parametrize("name", CASES)
def test_a_second_run_is_refused(name, whole):
    main, config, _ = whole(name)
    with pytest.raises(
        ValueError, match=f"^(--)?out: .* got {config.out}, .*resume, .*overwrite"
    ):
        main(config)


FITS = ("conll_linear", "multiclass_svm", "ocr_words", "shortest_path")


@pytest.mark.parametrize("name", thinned(FITS, 4, 1))
def test_overwriting_fits_them_all_anew(name, whole, tmp_path):
    main, config, result = whole(name)
    (tmp_path / "cells.json").write_text("of another run")
    again = main(dataclasses.replace(config, out=tmp_path, overwrite=True))
    assert untimed(again) == untimed(result)
    same(tmp_path, config.out)


@pytest.mark.parametrize("name", CASES)
def test_other_settings_and_data_are_named(name, whole, tmp_path):
    main, config, _ = whole(name)
    for option, value, said in RUNS[name].others:
        other = dataclasses.replace(config, resume=True, **{option: value})
        with pytest.raises(ValueError, match=f"^{said}: .* as in the run to resume"):
            main(other)


@pytest.mark.parametrize(
    "name", [one for one, name in zip(CASES, RUNS, strict=True) if name in SAVING]
)
def test_a_damaged_model_is_named(name, whole, tmp_path):
    _, config, _ = whole(name)
    shutil.copytree(config.out / "model", tmp_path / "model")
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=r"safetensors: expected the checksum"):
        load(tmp_path / "model")


def test_other_vectors_are_named(whole, vectors):
    main, config, _ = whole("conll_ner")
    other = dataclasses.replace(config, resume=True, embeddings=str(vectors))
    with pytest.raises(ValueError, match="vectors: expected 0 with checksum"):
        main(other)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "owner", "step", "calls"),
    [
        ("conll_ner", StructuredModule, "training_step", 1),
        # of an epoch: 6 images thrice, and their objective
        ("voc_localization", SingleObjectImages, "question", 18 + 6 + 9),
    ],
)
def test_a_run_killed_within_a_pass_goes_on(
    name, owner, step, calls, whole, tmp_path, monkeypatch
):
    main, config, _ = whole(name)
    honest, left = getattr(owner, step), [calls]

    def counted(*given, **more):
        left[0] -= 1
        return die() if left[0] < 0 else honest(*given, **more)

    monkeypatch.setattr(owner, step, counted)
    killed(lambda: main(dataclasses.replace(config, out=tmp_path)))
    monkeypatch.undo()
    if name == "conll_ner":  # in a process of its own, as users start it
        command = [sys.executable, f"recipes/{name}.py", "--data", config.data]
        command += ["--out", tmp_path, "--resume", "--epochs", config.epochs]
        assert "resuming" in run(*command).stdout
    else:
        main(goes_on(config, tmp_path))
    same(tmp_path, config.out)


def test_the_command_ends_with_status_130(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(StructuredModule, "training_step", lambda *_: interrupt())
    monkeypatch.setattr(sys, "argv", ["", "--data", tiny, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        conll_ner.command_line()
    assert stop.value.code == 130
    assert "stopped before the end of an epoch" in capsys.readouterr().err
