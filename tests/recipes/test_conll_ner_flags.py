"""Flags of the command line: files, layouts, schedules, and what is refused."""

import json
import sys
from pathlib import Path

import pytest
import torch

import conll_ner
from conll_ner import Config, main
from smoothsp import checkpoints
from smoothsp.data import read_tagged
from smoothsp.models import load
from tests.recipes.runs import numbers


@pytest.fixture(scope="module")
def layouts(tiny, tmp_path_factory):
    """The corpus once more, as three columns in the middle one, and as JSON lines."""
    folder = tmp_path_factory.mktemp("layouts")
    for name in ("train", "dev"):
        sentences = read_tagged(Path(tiny) / f"{name}.txt")
        columns = [
            "".join(f"{w} {t} x\n" for w, t in zip(s.words, s.tags, strict=True))
            for s in sentences
        ]
        (folder / f"{name}.col").write_text("\n".join(columns))
        lines = [json.dumps({"tokens": s.words, "ner_tags": s.tags}) for s in sentences]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def test_files_in_any_layout_train_the_same_model(layouts, tiny, tmp_path):
    whole = main(Config(tiny, epochs=1, out=tmp_path / "folder"))
    for ending, column in (("col", "2"), ("jsonl", None)):
        train, dev = (str(layouts / f"{name}.{ending}") for name in ("train", "dev"))
        config = Config(
            train=train, dev=dev, column=column, epochs=1, out=tmp_path / ending
        )
        found = main(config)
        assert found.items() <= whole.items()
        assert found["dev_f1"] == whole["dev_f1"]


def test_a_softmax_learns_without_a_chain(data, tmp_path):
    main(Config(data, loss="softmax", epochs=2, out=tmp_path))
    history = numbers(tmp_path)["history"]
    assert 0 < history[1]["loss"] < 0.7 * history[0]["loss"]
    head = load(tmp_path / "model").network.head
    assert all(torch.equal(p, torch.zeros_like(p)) for p in head.parameters())


def test_steps_count_whatever_the_number_of_sentences(tiny, tmp_path, monkeypatch):
    config = Config(tiny, steps=9, batch=5, out=tmp_path)
    assert main(config)["best_epoch"] <= 8
    saved = checkpoints.read(tmp_path / "checkpoint.ckpt")
    # eight rounds of two steps, each of at most 5 of 12 sentences
    assert (saved["global_step"], saved["epoch"]) == (16, 7)


@pytest.mark.parametrize(
    "change",
    [
        {"train": "a"},
        {"dev": "a"},
        {"test": "a"},
        {"train": "a", "dev": "b", "data": "c"},
    ],
)
def test_files_that_do_not_fit_together_are_named(change, tmp_path):
    with pytest.raises(ValueError, match=r"^train: expected --train and --dev, and no"):
        main(Config(out=tmp_path, **change))


def test_a_corpus_without_entities_is_reported(tmp_path):
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text("Bell O\nrang O\n")
    with pytest.raises(ValueError, match="tags: expected named entities"):
        main(Config(str(tmp_path), out=tmp_path / "out"))


def test_the_command_line_reports_without_a_traceback(tmp_path, monkeypatch):
    arguments = ["conll_ner.py", "--data", str(tmp_path / "none")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match=r"error: .*none: expected a folder"):
        conll_ner.command_line()
