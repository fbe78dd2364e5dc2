"""The linear recipe: its studies, what is kept of them, and columns of CoNLL files."""

import csv
import dataclasses
import gzip
import json

import numpy as np
import pytest

from conll_linear import Config, load, main
from linear_tagging import data, report
from linear_tagging.curves import run_key, run_with_evaluations
from linear_tagging.data import Split, read_columns
from linear_tagging.methods import STUDIES, Method
from smoothsp.linear.solvers import SVRG, CasimirSVRG


@pytest.fixture
def small(monkeypatch):
    """Fewer sentences."""
    load = data.load
    monkeypatch.setattr(
        data,
        "load",
        lambda *given: tuple(
            Split(part.tokens[:25], part.tags[:25]) for part in load(*given)
        ),
    )


@pytest.fixture
def task(small):
    return data.build_task(data.PAPER, *data.load(None), hashing=127)


def quick(tmp_path, *studies, **options):
    settings = {"c": (1.0,), "calls": 4, "seeds": (0, 1), "bound_passes": 20}
    return Config(study=studies, out=tmp_path, **settings | options)


def test_features_are_hashed_with_tags_if_asked(small, tmp_path):
    options = {"features": "hashed-with-label", "hashing": 127, "seeds": (0,)}
    result = main(quick(tmp_path, "rates", **options))
    assert all(np.isfinite(value) for value in result.values())
    task = data.build_task(data.WINDOW, *data.load(None), hash_with_label=127)
    assert task.train.num_weights == task.dev.num_weights == 127
    plain = data.build_task(data.WINDOW, *data.load(None), hashing=127)
    assert task.checksum != plain.checksum


@pytest.mark.parametrize(
    "studies",
    [["solvers"], pytest.param(["warm-start", "smoothing"], marks=pytest.mark.long)],
)
def test_studies_leave_numbers_and_figures(studies, small, tmp_path, capsys):
    result = main(quick(tmp_path, *studies))
    methods = [method.name for study in studies for method in STUDIES[study]]
    for study in studies:
        with (tmp_path / f"{study}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert {row["method"] for row in rows} == {m.name for m in STUDIES[study]}
        assert {row["seed"] for row in rows} == {"0", "1"}
        # all have as many oracle calls
        assert {float(row["calls"]) for row in rows} == {2, 4}
        # the bound is below F wherever a solver was
        assert all(float(row["gap"]) >= -1e-9 for row in rows)
    if studies == ["solvers"]:
        assert (tmp_path / "solvers_1.png").read_bytes()[:4] == b"\x89PNG"
    assert len(result) == 3 * len(set(methods))
    assert all(np.isfinite(value) for value in result.values())
    shown = capsys.readouterr()
    assert "nan" not in shown.err + shown.out
    assert all(f"| 1 | {name} | 4 |" in shown.out for name in methods)


def test_columns_are_asked_for_and_bad_sentences_left_out(tmp_path):
    text = "1\tAda\tB-X\tO\n2\tleft\tO\tB-Y\n\n1\tx\n\n1\tHolm\tB-X\tB-Y\n"
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(text)
    config = Config(tmp_path, column="inner", word_column="2", skip_bad=True)
    train, dev = load(config)
    assert train == dev
    assert train.tokens == [[("Ada",), ("left",)], [("Holm",)]]
    assert train.tags == [["O", "B-Y"], ["B-Y"]]
    with pytest.raises(
        ValueError, match=r"train.tsv, line 4: expected 4 columns separated"
    ):
        data.load(tmp_path)


def test_edited_numbers_of_a_run_are_named(small, tmp_path):
    config = quick(tmp_path, "smoothing", seeds=(0,))
    main(config)
    path = tmp_path / "cells.json"
    content = json.loads(path.read_text())
    for cell in content["cells"].values():
        cell.pop("rows", None)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"{path}: .*KeyError: 'rows'"):
        main(dataclasses.replace(config, resume=True))


def test_runs_of_other_settings_have_other_names():
    methods = [method for study in STUDIES.values() for method in study]
    names = [
        run_key(method, c, seed)
        for method in methods
        for c in (0.1, 1.0)
        for seed in (0, 1)
    ]
    settings = {repr((method.family, method.settings(1.0))) for method in methods}
    assert len(set(names)) == 4 * len(settings)


def test_a_run_that_stops_to_be_looked_at_is_the_same(task):
    for method in STUDIES["solvers"]:
        often = run_with_evaluations(
            task, method, 1.0, 3, [2, 4, 6], lambda text: None
        )["rows"]
        once = run_with_evaluations(task, method, 1.0, 3, [6], lambda text: None)[
            "rows"
        ]
        assert often[-1]["F"] == pytest.approx(once[0]["F"], rel=1e-9)
        assert often[-1]["F1"] == once[0]["F1"]
        seconds = [row["seconds"] for row in often]
        assert seconds == sorted(seconds) and seconds[0] > 0


def test_F_is_that_of_the_history_or_without_smoothing(task):
    # one of them sums in another order than the problem here
    lam = 0.1 / len(task.train)
    for method in STUDIES["solvers"]:
        solver = method.make(0.1, lam, 3)
        [row] = run_with_evaluations(task, method, 0.1, 3, [10], lambda _: None)["rows"]
        calls = 2 if method.solver in (SVRG, CasimirSVRG) else 1
        solver._limits = dataclasses.replace(solver._limits, max_passes=10 // calls)
        found = solver.solve(task.train)
        assert row["F"] == pytest.approx(found.history[-1].primal, rel=1e-12)


class Explodes:
    """A solver whose weights overflow after a pass."""

    def __init__(self, *, lam, seed, **options):
        pass

    def solve(self, problem, resume=None):
        raise FloatingPointError


def test_a_diverged_run_is_in_the_table(task):
    method = Method(Explodes, {}, "SVRG")
    rows = run_with_evaluations(task, method, 1.0, 0, [2, 4], lambda text: None)["rows"]
    assert [row["F"] for row in rows] == [np.inf]
    diverged = [{"method": "SVRG", "c": 1.0, "seed": 0, "gap": np.inf} | rows[0]]
    assert "| 1 | SVRG | diverges |" in report.table(diverged)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"calls": 5}, "even number"), ({"study": ("mu", "tagger")}, "tagger alone")],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)


def test_the_tagger_learns():
    assert main(Config(study=("tagger",)))["F1"] > 80


def test_all_columns_of_a_file(tmp_path):
    path = tmp_path / "eng.train"
    path.write_text(
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nsaid VBD I-VP O\n\n. . O O\n"
    )
    split = read_columns(path)
    assert split.tokens == [
        [("EU", "NNP", "I-NP"), ("said", "VBD", "I-VP")],
        [(".", ".", "O")],
    ]
    assert split.tags == [["I-ORG", "O"], ["O"]]
    (tmp_path / "eng.testa").write_text(path.read_text())
    train, dev = data.load(tmp_path)
    assert train == dev == split
    assert data.usable_templates(data.PAPER, split) == list(data.PAPER)
    words = Split([[("a",)]], [["O"]])
    assert data.usable_templates(data.PAPER, words) == ["word[-2..2]", "bias"]
    assert data.usable_templates(("word",), words) == ["word"]


@pytest.mark.parametrize("name", ["study", "seeds", "c", "bound_passes"])
def test_settings_without_a_value_are_named_at_the_door(name, tmp_path):
    nothing = 0 if name == "bound_passes" else ()
    with pytest.raises(ValueError, match=f"{name}: expected .* got (none|0)"):
        main(Config(**{name: nothing}, out=tmp_path))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ("a N B-X", "a B-X", r"dev\.txt: expected 3 columns as in .*train\.txt, got 2"),
        ("a B-X", "a N B-X", r"dev\.txt: expected 2 columns as in .*train\.txt, got 3"),
        ("a a N I B-X", "a a N I B-X", r"train\.txt: expected at most 4 .* got 5"),
    ],
)
def test_files_of_other_columns_are_named(train, dev, message, tmp_path):
    (tmp_path / "train.txt").write_text(train)
    (tmp_path / "dev.txt").write_text(dev)
    with pytest.raises(ValueError, match=message):
        main(quick(tmp_path / "out", "smoothing", data=tmp_path))


def test_columns_are_parted_as_conll_parts_them(tmp_path):
    path = tmp_path / "train.txt"
    content = "10\u00a0000 CD I-NP O\r\nmen NNS I-NP O\r\n".encode()
    for data_of in (bytes, gzip.compress):
        path.write_bytes(data_of(content))
        assert read_columns(path).tokens == [
            [("10\u00a0000", "CD", "I-NP"), ("men", "NNS", "I-NP")]
        ]
    rows = [f"{n}\t{word}{7 * chr(9)}_\tO" for n, word in ((1, "two"), (2, "men"))]
    path.write_text("\n".join(["# text = two men", *rows, ""]))
    assert read_columns(path) == Split([[("two",), ("men",)]], [["O", "O"]])
