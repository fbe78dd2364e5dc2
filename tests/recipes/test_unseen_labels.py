"""A label that only held-out samples have is told, and costs what it costs."""

import dataclasses

import pytest

import multiclass_svm
import ocr_words
from linear_tagging import data
from multiclass import datasets, fits
from ocr import synthetic, variants
from smoothsp.data import unseen_labels
from tests.recipes.runs import write_corpus


@pytest.fixture
def corpus(tmp_path):
    """Sentences of which those held out have types that training lacks."""
    write_corpus(tmp_path, (12, 4, 2))
    for name, new in (("dev", "B-NEW\nalso\tI-NEW"), ("test", "B-OTHER")):
        path = tmp_path / f"{name}.txt"
        path.write_text(f"{path.read_text()}\nNewly\t{new}\n")
    return str(tmp_path)


def warnings_in(capsys):
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if line.startswith("warning")]


def test_the_lightning_script_trains_on_them(corpus, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pytorch_lightning")
    lightning_ner = pytest.importorskip("lightning_ner")
    seen = []

    class Trainer:
        def __init__(self, **_):
            self.callback_metrics = {"f1": 0.0}

        def fit(self, model, data, **_):
            dev = data.val_dataloader()
            seen.extend(batch.tags for batch in dev)
            model.on_validation_epoch_start()
            for batch in dev:
                model.log = lambda *_, **__: None
                model.validation_step(batch)

    monkeypatch.setattr(lightning_ner.pl, "Trainer", Trainer)
    lightning_ner.main(lightning_ner.Config(data=corpus, out=tmp_path / "out"))
    assert len(warnings_in(capsys)) == 1
    assert sum(int((tags == -1).sum()) for tags in seen) >= 2


def test_the_linear_tagger_tells_of_them(corpus, capsys):
    parts = data.load(corpus)
    task = data.build_task(data.PAPER, *parts, hashing=127)
    assert warnings_in(capsys) == [
        "warning: dev has labels that training lacks, I-MISC (2), B-NEW (1), I-NEW (1);"
        " each of these 4 counts as an error"
    ]
    assert "B-NEW" not in task.labels and "B-MISC" in task.labels


def test_classes_tell_of_test_samples(monkeypatch, tmp_path, capsys):
    digits = datasets.digits()
    less = dataclasses.replace(digits, X=digits.X[:90], y=digits.y[:90] % 8)
    monkeypatch.setattr(datasets, "digits", lambda: less)
    monkeypatch.setattr(fits, "score", _stop)
    with pytest.raises(KeyboardInterrupt):
        multiclass_svm.main(multiclass_svm.Config(out=tmp_path))
    (line,) = warnings_in(capsys)
    of = {n: int((digits.y_test == n).sum()) for n in (8, 9)}
    assert f"8 ({of[8]})" in line and f"9 ({of[9]})" in line
    assert f"each of these {of[8] + of[9]} counts" in line


def test_letters_tell_of_words_held_out(monkeypatch, tmp_path, capsys):
    words = synthetic.draw(20, seed=0)
    train, test = words.split("small")
    missing = set(words.join_letters(test)) - set(words.join_letters(train))
    assert missing
    monkeypatch.setattr(variants, "train", _stop)
    with pytest.raises(KeyboardInterrupt):
        ocr_words.main(ocr_words.Config(drawn=20, out=tmp_path))
    line = warnings_in(capsys)[0]
    assert line.startswith("warning: small, test has labels that training lacks")
    assert all(f"{letter} (" in line for letter in missing) or "others" in line


def _stop(*_):
    raise KeyboardInterrupt


def test_nothing_is_said_where_all_is_known(capsys):
    unseen_labels.warn("dev", "aab", "ab")
    assert capsys.readouterr() == ("", "")


def test_many_are_counted(capsys):
    unseen_labels.warn("dev", range(16), [15])
    assert "and 5 others; each of these 15" in capsys.readouterr().err


def test_labels_of_another_column_are_an_error():
    message = (
        "dev: expected labels .* such as B-X, O, got none of them but NN .2., DT .1."
    )
    with pytest.raises(ValueError, match=message):
        unseen_labels.warn("dev", ["NN", "DT", "NN", "O"], ["O", "B-X"])
