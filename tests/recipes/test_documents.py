"""Whole documents of the linear tagger, against an enumeration of their tags."""

import itertools

import numpy as np
import pytest

from conll_linear import Config, main
from linear_tagging import data, documents

ROWS = ["Ada I-PER", "met O", "Holm I-LOC", "", "Holm I-LOC", "left O", ""]
DOCUMENTS = [ROWS, ["he O", "left O", ""], ["Holm I-PER", "met O", "Ada I-PER", ""]]


@pytest.fixture
def folder(tmp_path):
    lines = itertools.chain(*(["-DOCSTART- O", "", *rows] for rows in DOCUMENTS))
    text = "\n".join(lines)
    for name in ("eng.train", "eng.testa"):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_best_tags_of_a_document(folder, monkeypatch):
    monkeypatch.setattr(documents, "BATCH", 2)
    train, dev = data.load(folder)
    task = data.build_task(("word",), train, dev)
    kinds = [label[2:] for label in task.labels]
    changed = False
    for seed in range(5):
        w = np.random.default_rng(seed).normal(size=task.dev.num_weights)
        weights, moves, start, end = task.dev.split(w)
        scores = task.features @ weights

        def score(y, scores=scores, moves=moves, start=start, end=end):
            total = scores[np.arange(5), y].sum() + start[[y[0], y[3]]].sum()
            total += moves[y[0], y[1]] + moves[y[1], y[2]] + moves[y[3], y[4]]
            first, second = kinds[y[2]], kinds[y[3]]
            penalty = 1.0 if first and second else 0.5
            return total + end[[y[2], y[4]]].sum() - penalty * (first != second)

        labels, proven = documents.decode(task, w, dev)
        plain = list(task.dev.decode(w))
        best = max(itertools.product(range(len(kinds)), repeat=5), key=score)
        assert labels == [*best, *plain[5:]]
        assert proven == 1
        changed |= labels != plain
    assert changed


def test_the_tagger_reports_f1_of_documents(folder, capsys):
    result = main(Config(data=folder, study=("tagger",)))
    assert "3 documents decoded whole, 100.0 % with a proof" in capsys.readouterr().out
    assert result["document_F1"] == result["F1"] == 100
