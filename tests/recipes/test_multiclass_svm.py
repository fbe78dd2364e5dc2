"""The recipe of multiclass SVMs: a small run, its files, what it reads and refuses."""

import csv
import dataclasses
import gzip
import json

import numpy as np
import pytest
from scipy import sparse

import multiclass_svm
from multiclass import datasets
from multiclass import fits as multiclass_fits
from multiclass_svm import Config, main
from smoothsp.linear import WestonWatkinsSVC
from tests.recipes.runs import write_set


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole small run: its configuration, and what main() answered."""
    folder = tmp_path_factory.mktemp("multiclass")
    config = Config(
        data=(write_set(folder), write_set(folder, "other.gz", "")),
        log2_c=(-2, 0),
        tolerances=(0.09, 0.009),
        out=folder / "out",
    )
    return config, main(config)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_accuracies_are_those_of_the_estimator(run):
    config, result = run
    found = rows(config.out / "accuracy.csv")
    assert len(found) == 2 * 2 * 2
    for row in found:
        if row["set"] == "dna":
            samples = datasets.load(config.data[0])
            model = WestonWatkinsSVC(
                fit_intercept=False,
                C=2.0 ** int(row["log2_c"]),
                tol=float(row["tolerance"]),
                stopping="relative_gap",
                certify_every=1,
                max_epochs=100_000,
                random_state=config.seed,
            ).fit(samples.X, samples.y)
            share = (model.predict(samples.X_test) == samples.y_test).mean()
            assert float(row["accuracy"]) == pytest.approx(100 * share)
            assert float(row["primal"]) == pytest.approx(model.history_[-1].primal)
    best = max(float(row["accuracy"]) for row in found if row["set"] == "dna")
    assert result["dna_best"] == best > 50


def test_the_paper_stands_beside_the_sets_it_has(run):
    config, result = run
    found = rows(config.out / "accuracy.csv")
    by_set = {row["set"]: row["paper"] for row in found}
    assert by_set["dna"] and not by_set["other"]
    first = next(r for r in found if (r["log2_c"], r["tolerance"]) == ("-2", "0.009"))
    assert float(first["paper"]) == 93.59
    apart = [
        abs(float(row["accuracy"]) - float(row["paper"]))
        for row in found
        if row["paper"]
    ]
    assert result["dna_largest_distance_to_paper"] == pytest.approx(max(apart))


def test_all_files_are_written(run):
    config, result = run
    content = json.loads((config.out / "metrics.json").read_text())
    assert content["result"] == result
    assert content["settings"]["log2_c"] == [-2, 0]
    assert (config.out / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_tables_show_ours_and_the_papers(run, capsys):
    main(dataclasses.replace(run[0], resume=True))
    out = capsys.readouterr().out
    assert "| dna, paper | 93.59 | 92.24 | 2^-2 |" in out
    assert "| dna, ours |" in out and "| other, ours |" in out
    assert "other, paper" not in out


@pytest.mark.filterwarnings("ignore:.*the fit was interrupted")
def test_an_interrupted_fit_is_no_result():
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        multiclass_fits.score(datasets.digits(), 1.0, 0.01, 0, 9.0, interrupt)


@pytest.mark.parametrize("where", ["X", "X_test"])
def test_a_checksum_is_of_all_that_a_fit_depends_on(where):
    one = sparse.csr_matrix([[1.0, 2.0], [0.0, 3.0]])
    # the same numbers in the same order, in other rows
    moved = sparse.csr_matrix([[1.0, 0.0], [2.0, 3.0]])
    y, parts = np.array([0, 1]), {"X": one, "X_test": one}
    other = datasets.Samples("a", y=y, y_test=y, **parts | {where: moved})
    assert datasets.Samples("a", y=y, y_test=y, **parts).checksum != other.checksum


def test_sets_of_one_name_are_refused(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    same = tuple(write_set(tmp_path / folder) for folder in ("one", "two"))
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"data: .* got 2 called dna"):
        main(Config(data=same, out=out))


def test_a_cell_that_lacks_a_field_is_named(run, tmp_path):
    content = json.loads((run[0].out / "cells.json").read_text())
    for cell in content["cells"].values():
        cell.pop("accuracy")
    (tmp_path / "cells.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"cells\.json: .*KeyError: 'accuracy'"):
        main(dataclasses.replace(run[0], out=tmp_path, resume=True))


def test_without_a_run_to_continue_resume_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="resume: expected a run to continue"):
        main(Config(out=tmp_path, resume=True))
    cells = ('{"settings": {}, "cells": [3]}', '{"settings": {}, "cells": {"a": 3}}')
    for content in ("{}", "[1]", *cells, "{", "[" * 100_000):
        (tmp_path / "cells.json").write_text(content)
        with pytest.raises(ValueError, match="expected the cells of this recipe"):
            main(Config(out=tmp_path, resume=True))


def test_a_fit_beyond_the_limit_is_given_up_with_harder_ones(tmp_path):
    config = Config(
        data=(write_set(tmp_path),),
        log2_c=(-1, 0),
        tolerances=(0.09, 0.009),
        limit=1e-9,
        out=tmp_path / "out",
    )
    assert main(config) == {}
    for row in rows(config.out / "accuracy.csv"):
        assert row["accuracy"] == ""


@pytest.mark.parametrize(
    ("train", "test"),
    [("a.scale", "a.scale.t"), ("b.gz", "b.t.gz"), ("c.x.train.gz", "c.x.test.gz")],
)
def test_test_files_are_found_beside(train, test, tmp_path):
    samples = datasets.load(write_set(tmp_path, train, test))
    assert samples.X.shape == (60, 5) and samples.X_test.shape == (30, 5)
    assert samples.name == train[0] and samples.classes == 3


def test_without_test_file_a_fifth_is_held_out(tmp_path):
    samples = datasets.load(write_set(tmp_path, "a.txt", ""))
    assert samples.X.shape == (48, 5) and len(samples.y_test) == 12


def test_idx_files_are_read(tmp_path):
    rng = np.random.default_rng(0)
    images = {part: rng.integers(256, size=(3, 2, 2)) for part in ("train", "t10k")}
    for part, values in images.items():
        head = b"\0\0\x08\x03" + np.array(values.shape, ">u4").tobytes()
        content = head + values.astype(np.uint8).tobytes()
        with gzip.open(tmp_path / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(content)
        labels = b"\0\0\x08\x01" + np.array([3], ">u4").tobytes() + bytes([4, 0, 9])
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    samples = datasets.load(tmp_path)
    np.testing.assert_allclose(samples.X.toarray(), images["train"].reshape(3, 4) / 255)
    np.testing.assert_allclose(
        samples.X_test.toarray(), images["t10k"].reshape(3, 4) / 255
    )
    assert list(samples.y) == [4, 0, 9]
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels[:-1])
    with pytest.raises(ValueError, match="data: expected an idx file of bytes"):
        datasets.load(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="found no train-labels"):
        datasets.load(tmp_path)


def test_what_is_no_libsvm_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="data: expected a LIBSVM file"):
        datasets.load(tmp_path / "absent")
    path = tmp_path / "words"
    path.write_text("no numbers here\n")
    with pytest.raises(ValueError, match=r"words, line 1: expected a label and"):
        datasets.load(path)
    path.write_text("")
    with pytest.raises(ValueError, match="words: expected samples, found none"):
        datasets.load(path)


ODD = {
    "nan": ("2 1:3\n1 1:nan", "nan, line 2: expected finite numbers, got '1 1:nan'"),
    "no label": ("nan 1:1\n2 1:3\n", "line 1: expected finite numbers, got 'nan 1:1'"),
    "half": (
        "#\n\n0.5 1:1",
        "half, line 3: expected whole numbers for classes, got '0",
    ),
    "alike": ("1 1:2\n1 1:3\n", "at least two classes to train on, got 1 in"),
    "far": (f"1 {10**11}:2\n1 1:3\n", "far, line 1: expected a label and index:value"),
    "no pair": (
        "1 1:2\n\n# x\n2 1:2 3\n",
        "pair, line 4: expected a label .*'2 1:2 3'",
    ),
    "unsorted": ("1 2:2\n2 2:2 1:1\n", "line 2: expected .*'2 2:2 1:1' .*sorted"),
    "binary": (b"1 1:2\n\xff\xfe 1:3\n", "binary, line 2: expected a label and"),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_samples_are_named_with_their_file(odd, tmp_path):
    content, message = ODD[odd]
    path = tmp_path / odd
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        datasets.load(path)


HARMLESS = {
    "byte order mark": lambda x: b"\xef\xbb\xbf" + x,
    "CRLF": lambda x: x.replace(b"\n", b"\r\n"),
    "CR": lambda x: x.replace(b"\n", b"\r"),
    "blank lines": lambda x: b"\n" + x.replace(b"\n", b"\n \n"),
    "comments": lambda x: b"# said first\n" + x.replace(b"\n", b" # 1:2\n"),
    "queries": lambda x: x.replace(b" 1:", b" qid:7 1:"),
    "no last line end": lambda x: x.rstrip(),
    "tabs": lambda x: x.replace(b" ", b"\t"),
    "compressed": gzip.compress,
}


@pytest.mark.parametrize("change", HARMLESS)
def test_libsvm_files_are_read_however_they_are_written(change, tmp_path):
    content = b"".join(b"%d 1:%d 3:.5\n" % (1 + n % 2, n) for n in range(10))
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(HARMLESS[change](content))
    assert (
        datasets.load(tmp_path / "a").checksum == datasets.load(tmp_path / "b").checksum
    )


@pytest.mark.parametrize("harm", [lambda x: x[:-30], lambda x: b"no gzip"])
def test_damaged_gzip_files_are_named(harm, tmp_path):
    path = write_set(tmp_path, "a.gz", "")
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(ValueError, match=r"a\.gz(: expected a whole|, line 1: exp)"):
        datasets.load(path)
    path.rename(tmp_path / "train-images-idx3-ubyte.gz")
    with pytest.raises(ValueError, match=r"ubyte\.gz(: expected a whole|\. Was it)"):
        datasets.load(tmp_path)


def test_odd_idx_files_are_named(tmp_path):
    def write(images=6, labels=6, side=2, head=None):
        for part, own in (("train", 2), ("t10k", side)):
            for name, shape in (
                ("images-idx3", (images, own, own)),
                ("labels-idx1", (labels,)),
            ):
                size = (
                    b"\0\0\x08" + bytes([len(shape)]) + np.array(shape, ">u4").tobytes()
                )
                whole = size + bytes(int(np.prod(shape)))
                (tmp_path / f"{part}-{name}-ubyte").write_bytes(whole[:head])

    for change, message in (
        ({"head": 0}, "an idx file of bytes with 3 axes"),
        ({"head": 7}, "an idx file of bytes with 3 axes"),
        ({"labels": 5}, "a label for each image of train .* 6 images and 5 labels"),
        ({"side": 3}, "images of one size .* 4 pixels in train and 9 in t10k"),
        ({"images": 0, "labels": 0}, "samples, found none in"),
    ):
        write(**change)
        with pytest.raises(ValueError, match=f"data: expected {message}"):
            datasets.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed: expected at least 0"),
        ({"log2_c": ()}, "log2_c: expected one value at least"),
        ({"log2_c": (5000,)}, "log2_c: expected -1000 to 1000, got 5000"),
        ({"tolerances": (1.5,)}, "tolerances: expected shares between 0 and 1"),
        ({"limit": 0.0}, "limit: expected a positive number"),
        (
            {"tolerances": (0.1, 0.10)},
            r"tolerances: expected different .* 0\.1 more than once",
        ),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        main(dataclasses.replace(Config(), **change))


def test_errors_end_the_command_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["multiclass_svm.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="error: --data: expected MNIST's idx files"):
        multiclass_svm.command_line()
