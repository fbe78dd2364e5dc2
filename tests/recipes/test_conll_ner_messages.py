"""What the recipe says to a user who errs."""

import sys

import pytest
import torch

import conll_ner
from conll_ner import Config, main
from runs import checkpoint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "svm"}, "loss: expected one of hinge, hinge-l2, .* got 'svm'"),
        ({"loss": "crf", "mu": 1.0}, "mu: expected none with --loss crf"),
        ({"loss": "hinge", "top_k": 2}, "top_k: expected none with --loss hinge"),
        ({"mu": 0.0}, "mu: expected a positive number, got 0.0"),
        ({"top_k": 0}, "top_k: expected at least 1, got 0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"nbest": 2}, "nbest: expected 1 in training, got 2. Add --predict FILE"),
        ({"predict": "-", "resume": True}, "resume: expected --resume or --predict"),
    ],
)
def test_wrong_settings_are_named(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        main(Config(out=tmp_path, **change))


def test_predicting_without_a_model_says_where_it_was_sought(tmp_path):
    with pytest.raises(FileNotFoundError, match="out: expected a trained model, found"):
        main(Config(out=tmp_path, predict="-"))


def test_resuming_nothing_says_so(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="resume: expected a run to continue"):
        main(Config(tiny, out=tmp_path, resume=True))


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
    with pytest.raises(ValueError, match="data: expected named entities"):
        main(Config(str(tmp_path), out=tmp_path / "out"))


def test_the_command_line_reports_without_a_traceback(tmp_path, monkeypatch):
    arguments = ["conll_ner.py", "--data", str(tmp_path / "none")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match=r"error: .*none: expected a folder"):
        conll_ner.command_line()
