"""The recipe of words of letters: a small run, its files, what it reads and refuses."""

import csv
import dataclasses
import gzip
import json

import numpy as np
import pytest

import ocr_words
from ocr import letters, synthetic, variants
from ocr_words import Config, main
from smoothsp.linear.solvers import BCFW

LAM = 0.05


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole small run: its configuration, and what main() answered."""
    config = Config(
        lam=(LAM,),
        seeds=(1, 2),
        tol=1e-2,
        max_passes=40,
        drawn=60,
        out=tmp_path_factory.mktemp("ocr"),
    )
    return config, main(config)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_all_eight_variants_reach_the_gap_where_they_say_so(run):
    config, _ = run
    found = rows(config.out / "variants.csv")
    assert len(found) == 8 * 2 * 2
    certificates = [list(row.values())[:4] for row in rows(config.out / "gaps.csv")]
    assert {row["variant"] for row in found} == set(map(str, variants.VARIANTS))
    for row in found:
        reached = float(row["gap"]) <= config.tol
        assert (row["converged"] == "True") == reached
        assert reached or int(row["passes"]) == config.max_passes
        # a call for each step, and for each word one a certificate
        if row["variant"] in ("BCFW", "BCPFW"):
            name = [row[key] for key in ("setting", "lam", "variant", "seed")]
            calls = int(row["passes"]) + certificates.count(name)
            assert float(row["oracle_passes"]) == pytest.approx(calls)
    assert {row["converged"] for row in found} == {"True", "False"}


def test_a_variant_is_the_solver_and_its_errors_are_on_words_held_out(run):
    config, result = run
    words = synthetic.draw(config.drawn, seed=0)
    train, test = words.split("small")
    assert len(train) == 6 and len(test) == 54
    solution = BCFW(
        lam=LAM, sampling="uniform", steps="pairwise", cache=True, seed=2,
        tol=config.tol, max_passes=config.max_passes,
    ).solve(train)  # fmt: skip
    row = next(
        row
        for row in rows(config.out / "variants.csv")
        if (row["setting"], row["variant"], row["seed"])
        == ("small", "BCPFW + cache", "2")
    )
    assert float(row["gap"]) == solution.gap
    assert float(row["oracle_passes"]) == pytest.approx(solution.oracle_calls / 6)
    wrong = np.mean(test.decode(solution.w) != test.labels)
    assert float(row["letter_error"]) == pytest.approx(100 * wrong)
    # more words, fewer errors, and better than the most frequent letter
    large = result[f"large_{LAM}_BCPFW_letter_error"]
    assert large < result[f"small_{LAM}_BCPFW_letter_error"] < 80


def test_all_figures_are_written(run):
    config, _ = run
    for name in ("gaps_small_0.05.png", "gaps_large_0.05.png"):
        assert (config.out / name).read_bytes().startswith(b"\x89PNG")


def test_tables_show_variants(run, capsys):
    main(dataclasses.replace(run[0], resume=True))
    out = capsys.readouterr().out
    assert "drawn words: 60 words" in out
    assert "small, lambda 0.05" in out and "large, lambda 0.05" in out
    assert "| BCPFW + gap sampling + cache |" in out


def test_a_cell_that_lacks_a_field_is_named(run, tmp_path):
    content = json.loads((run[0].out / "cells.json").read_text())
    for cell in content["cells"].values():
        cell.pop("gap")
    (tmp_path / "cells.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"cells\.json: .*KeyError: 'gap'"):
        main(dataclasses.replace(run[0], out=tmp_path, resume=True))


def test_an_interrupted_solver_is_no_result():
    train, test = synthetic.draw(20, seed=0).split("large")
    limits = {"tol": 0, "max_passes": 50, "max_seconds": 60.0}

    def interrupt(_):
        raise KeyboardInterrupt

    about = train, test, 1e-3, 0, limits, interrupt
    with pytest.raises(KeyboardInterrupt):
        variants.train(variants.VARIANTS[0], *about)


def write_letters(folder, name="letter.data", change=lambda fields: fields):
    """Three words of two letters, in folds 0, 1 and 2."""
    rng = np.random.default_rng(0)
    lines, pixels = [], rng.integers(2, size=(6, 128))
    for t, letter in enumerate("abbaab"):
        head = [t + 1, letter, -1 if t % 2 else t + 2, t // 2 + 1, t % 2 + 1, t // 2]
        fields = [str(x) for x in [*head, *pixels[t]]]
        lines.append("\t".join(change(fields) if t == 3 else fields) + "\n")
    opened = gzip.open if name.endswith(".gz") else open
    with opened(folder / name, "wt") as sink:
        sink.writelines(lines)
    return pixels


@pytest.mark.parametrize("name", ["letter.data", "letter.data.gz"])
def test_letters_are_read(tmp_path, name):
    pixels = write_letters(tmp_path, name)
    for path in (tmp_path, tmp_path / name):
        words = letters.load(path)
        np.testing.assert_array_equal(words.pixels, pixels)
        assert words.labels.tolist() == [0, 1, 1, 0, 0, 1]
        assert words.lengths.tolist() == [2, 2, 2]
        assert words.folds.tolist() == [0, 1, 2]
    # 129 x 26 for pixels and a constant, 26 x 26 pairs, 2 x 26 ends
    assert words.problem.num_weights == 4082
    assert [len(part) for part in words.split("small")] == [1, 2]
    assert [len(part) for part in words.split("large")] == [2, 1]


def changed(place, value):
    return lambda fields: [*fields[:place], value, *fields[place + 1 :]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fields: fields[:-1], "expected 134 columns, got 133 in line 4"),
        (changed(1, "A"), "expected a letter from a to z, got 'A' in line 4"),
        (changed(9, "2"), "expected pixels of 0 and 1 in line 4"),
        (changed(5, "x"), "expected the number of a fold, got 'x' in line 4"),
        (changed(5, "3"), "all letters of a word in one fold, got two folds in word 2"),
    ],
)
def test_wrong_lines_are_named(tmp_path, change, message):
    write_letters(tmp_path, change=change)
    with pytest.raises(ValueError, match=f"data: .*{message}"):
        letters.load(tmp_path)


def test_what_is_no_letter_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data: expected letter\.data or"):
        letters.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="data: expected a folder or a file"):
        letters.load(tmp_path / "absent")
    (tmp_path / "letter.data").write_text("")
    with pytest.raises(ValueError, match="data: expected letters, found none"):
        letters.load(tmp_path)
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8bno")
    with pytest.raises(ValueError, match="data: expected lines of text"):
        letters.load(tmp_path / "broken.gz")
    line = "1\ta\t-1\t1\t1\t4" + "\t0" * 128
    (tmp_path / "letter.data").write_text(line)
    with pytest.raises(ValueError, match=r"words in fold 0 and in others, .*\[4\]"):
        letters.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_passes": 0}, "max_passes: expected at least 1, got 0"),
        ({"drawn": 3}, "drawn: expected at least 20, got 3"),
        ({"tol": 0.0}, "tol: expected a positive number"),
        ({"max_seconds": -1.0}, "max_seconds: expected a positive number"),
        ({"lam": (0.0,)}, "lam: expected positive numbers, got 0.0"),
        ({"seeds": (-1,)}, "seeds: expected integers of at least 0"),
        ({"seeds": ()}, "seeds: expected one value at least"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        main(dataclasses.replace(Config(), **change))


def test_errors_end_the_command_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["ocr_words.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"error: --data: expected letter\.data"):
        ocr_words.command_line()
