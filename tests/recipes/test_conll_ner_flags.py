"""Flags of the command line: files, layouts, schedules, and what is refused."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

import conll_ner
from conll_ner import Config, main
from ner.settings import check
from runs import checkpoint
from smoothsp.data.columns import read
from smoothsp.models import load
from tests.recipes.runs import numbers


@pytest.fixture(scope="module")
def layouts(tiny, tmp_path_factory):
    """The corpus once more, as three columns in the middle one, and as JSON lines."""
    folder = tmp_path_factory.mktemp("layouts")
    for name in ("train", "dev"):
        sentences = read(Path(tiny) / f"{name}.txt").sentences
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
        again = main(dataclasses.replace(config, train=None, dev=None, evaluate=dev))
        assert again["f1"] == pytest.approx(found["dev_f1"], abs=1e-12)


def test_labels_that_training_never_saw_are_told(trained, tmp_path, capsys):
    path = tmp_path / "new.txt"
    path.write_text("Orla B-GOD\nleft O\n\nHolm B-LOC\n")
    assert main(dataclasses.replace(trained[0], evaluate=str(path)))["recall"] <= 0.5
    output = capsys.readouterr()
    assert "labels that training lacks, S-GOD (1)" in output.err
    assert "GOD" in output.out
    # another column, not a score of 0
    path.write_text("Orla NNP B-PER\nleft VBD O\n")
    with pytest.raises(ValueError, match=r"expected labels that training has.*S-NNP"):
        main(dataclasses.replace(trained[0], evaluate=str(path), column="2"))


def test_a_softmax_learns_without_a_chain(data, tmp_path):
    main(Config(data, loss="softmax", epochs=2, out=tmp_path))
    history = numbers(tmp_path)["history"]
    assert 0 < history[1]["loss"] < 0.7 * history[0]["loss"]
    head = load(tmp_path / "model").network.head
    assert all(torch.equal(p, torch.zeros_like(p)) for p in head.parameters())


def test_steps_count_whatever_the_number_of_sentences(tiny, tmp_path, monkeypatch):
    config = Config(tiny, steps=9, batch=5, out=tmp_path)
    assert main(config)["best_epoch"] <= 8
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    state = saved["dense"]["state"]
    # eight rounds of two steps, each of at most 5 of 12 sentences
    assert {int(values["step"]) for values in state.values()} == {16}
    assert saved["settings"]["steps"] == 2


def test_a_run_stops_when_it_no_longer_gets_better(tiny, tmp_path, capsys):
    config = Config(tiny, epochs=40, rate=1e-9, patience=2, out=tmp_path)
    main(config)
    scores = [row["dev_f1"] for row in numbers(tmp_path)["history"]]
    assert len(scores) < 40
    assert max(scores[-2:]) <= max(scores[:-2])
    assert "stopped early: 2 rounds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"steps": 5, "epochs": 1}, "steps: expected steps or epochs, got both"),
        ({"train": "a"}, "dev: expected a file beside --train, got none"),
        ({"dev": "a"}, "train: expected a file beside --dev, got none"),
        ({"test": "a"}, "test: expected --train and --dev .* give --evaluate FILE"),
        ({"train": "a", "dev": "b", "data": "c"}, "train: expected --train or --data"),
        ({"evaluate": "a", "predict": "b"}, "evaluate: expected --evaluate or --pred"),
        ({"dropout": 1.0}, "dropout: expected at least 0, below 1, got 1.0"),
        ({"rate": 0.0}, "rate: expected a positive number, got 0.0"),
        ({"word_size": 3, "embeddings": "a"}, "word_size: expected none with --embed"),
        ({"encoding": "x"}, "encoding: expected an encoding of Python"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        check(Config(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "svm"}, "loss: expected one of hinge, hinge-l2, .* got 'svm'"),
        ({"loss": "crf", "mu": 1.0}, "mu: expected none with loss crf"),
        ({"loss": "hinge", "top_k": 2}, "top_k: expected none with loss hinge"),
        ({"mu": 0.0}, "mu: expected a positive number, got 0.0"),
        ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"nbest": 2}, "nbest: expected 1 in training, got 2. Add --predict FILE"),
        ({"show": "json"}, "show: expected columns in training, got json. Add --pre"),
        ({"predict": "-", "show": "xml"}, "show: expected one of columns, json, colo"),
        (
            {"predict": "-", "confidence": True},
            "confidence: expected --predict FILE with --show json or colour beside it",
        ),
    ],
)
def test_settings_that_no_run_takes_are_named(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        main(Config(out=tmp_path, **change))


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut"])
def test_a_damaged_checkpoint_is_reported(content, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(content)
    (tmp_path / "text").write_text("Bell\n")
    with pytest.raises(ValueError, match=r"checkpoint.pt: expected a checkpoint"):
        main(Config(out=tmp_path, predict=str(tmp_path / "text")))


def test_a_foreign_checkpoint_is_reported(tmp_path):
    checkpoint.save(tmp_path / "checkpoint.pt", {"weights": torch.zeros(1)})
    with pytest.raises(ValueError, match="expected a checkpoint of this recipe"):
        checkpoint.load(tmp_path / "checkpoint.pt")


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
