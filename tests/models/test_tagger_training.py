"""``Tagger.train``: data of any form, options, runs in a folder, and errors."""

import sys
from dataclasses import asdict
from itertools import chain

import pytest
import torch

pytest.importorskip("pytorch_lightning")

from corpora import toy_corpus
from smoothsp.data import TaggedSentence
from smoothsp.metrics import span_f1
from smoothsp.models import Tagger, load, tagger_training
from smoothsp.schemes import convert
from tests.programs import run
from tests.sweeps import thinned

SMALL = {"hidden": 8, "word_size": 6, "batch": 4}


@pytest.fixture(scope="module")
def splits():
    """Sentences to train on, and to choose by, in BIO."""
    made = toy_corpus.make(3, 40, 12, 4, scheme="BIO")
    return made.train, made.dev


@pytest.fixture(scope="module")
def tagger(splits):
    return Tagger.train(*splits, epochs=2, **SMALL)


def same(one, other):
    theirs = other.network.state_dict()
    for name, weights in one.network.state_dict().items():
        assert torch.equal(theirs[name], weights), name
    assert (one.labels, one.vocabulary) == (other.labels, other.vocabulary)


def columns(path, sentences):
    rows = [
        "".join(f"{w}\t{t}\n" for w, t in zip(s.words, s.tags, strict=True))
        for s in sentences
    ]
    path.write_text("\n".join(rows))
    return path


FORMS = {
    "path": lambda part, path: columns(path, part),
    "pairs": lambda part, _: [(s.words, s.tags) for s in part],
    "dictionaries": lambda part, _: [
        {"tokens": s.words, "ner_tags": s.tags} for s in part
    ],
    "generator": lambda part, _: (TaggedSentence(s.words, s.tags) for s in part),
}


@pytest.mark.parametrize("form", thinned(FORMS, 4, 2))
def test_data_in_any_form_train_the_same_tagger(form, splits, tagger, tmp_path, capsys):
    given = [
        FORMS[form](part, tmp_path / f"{name}.txt")
        for name, part in zip(("train", "dev"), splits, strict=True)
    ]
    found = Tagger.train(*given, epochs=2, **SMALL)
    same(found, tagger)
    output = capsys.readouterr()
    assert not output.out
    lines = [line for line in output.err.splitlines() if ": read as " not in line]
    assert lines[0].startswith("epoch  1/2  loss ")


def test_a_tagger_predicts_in_the_scheme_it_was_trained_in(splits, tagger, tmp_path):
    train, dev = (
        [(s.words, convert(s.tags, source="BIO", target="BILOU")) for s in part]
        for part in splits
    )
    found = Tagger.train(train, dev, epochs=2, **SMALL)
    same(found, tagger)
    assert (found.scheme, tagger.scheme) == ("BILOU", "BIO")
    words = [words for words, _ in dev]
    expected = [
        convert(t.tags, source="BIO", target="BILOU") for t in tagger.tag(words)
    ]
    assert [t.tags for t in found.tag(words)] == expected
    found.save(tmp_path)
    assert load(tmp_path, "cpu").tag(words) == found.tag(words)


def test_scores_are_those_of_the_best_epoch(splits, tagger):
    history = tagger.about["history"]
    scores = tagger.evaluate(splits[1])
    assert list(scores) == ["f1", "precision", "recall"]
    best = max(row["dev_f1"] for row in history)
    assert scores["f1"] == tagger.about["dev_f1"] == pytest.approx(best, abs=1e-12)
    gold = [s.tags for s in splits[1]]
    guess = [t.tags for t in tagger.tag([s.words for s in splits[1]])]
    assert tuple(scores.values())[1:] == span_f1(gold, guess)[:2]
    with pytest.raises(ValueError, match=r"^data: .*each word, got words without tags"):
        tagger.evaluate([(["a"], [None])])


def test_one_sentence_in_ten_is_held_out_if_no_others_choose(splits):
    train = list(splits[0])
    for given, kept, held in ((train, 36, 4), (train[:5], 5, 5)):
        found = tagger_training._load_examples(given, None)
        assert tuple(map(len, found)) == (kept, held)
    # those whose tags are not known are never held out
    train[10] = TaggedSentence(train[10].words, [None] * len(train[10].words))
    kept, held = tagger_training._load_examples(train, None)
    assert (len(kept), len(held)) == (36, 4) and train[10] in kept


@pytest.mark.parametrize("structure", thinned(["chain", "semi-markov"], 2))
def test_words_may_lack_their_tags(structure, splits):
    hidden = [
        (s.words, [None if n % 3 == 0 else t for n, t in enumerate(s.tags)])
        for s in splits[0]
    ]
    given = {"epochs": 4, "rate": 1e-2, "structure": structure, "loss": "crf"}
    tagger = Tagger.train(hidden, splits[1], **given, **SMALL)
    history = tagger.about["history"]
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]


@pytest.mark.long
def test_plain_tags_are_learnt(splits):
    data = [
        (s.words, ["NAME" if t != "O" else "WORD" for t in s.tags]) for s in splits[0]
    ]
    tagger = Tagger.train(data, steps=60, rate=2e-2, **SMALL)
    assert (tagger.scheme, tagger.labels) == ("plain", ["S-NAME", "S-WORD"])
    found = chain(*(t.tags for t in tagger.tag([words for words, _ in data])))
    gold = [*chain(*(tags for _, tags in data))]
    assert sum(a == b for a, b in zip(found, gold, strict=True)) > 0.9 * len(gold)


@pytest.mark.long
def test_prefixes_without_types_are_learnt(splits, tmp_path):
    data = [(s.words, [t[0] for t in s.tags]) for s in splits[0]]
    tagger = Tagger.train(data, steps=60, rate=2e-2, **SMALL)
    assert (tagger.types, tagger.labels) == (["_"], ["O", "B", "I", "E", "S"])
    tagger.save(tmp_path)
    found = load(tmp_path, "cpu").tag([words for words, _ in data], confidence=True)
    assert span_f1([tags for _, tags in data], [t.tags for t in found])[2] > 0.8
    assert {tag for t in found for tag in t.tags} == {"O", "B", "I"}
    assert all(0 < s.confidence <= 1 for t in found for s in t.spans)


def test_control_c_returns_the_best_epoch_and_resume_goes_on(
    splits, tagger, tmp_path, monkeypatch
):
    calls = []
    honest = tagger_training._TaggingLoss.__call__

    def pressed(objective, numbers):
        calls.append(numbers)
        if len(calls) == 13:
            raise KeyboardInterrupt
        return honest(objective, numbers)

    monkeypatch.setattr(tagger_training._TaggingLoss, "__call__", pressed)
    given = {"epochs": 2, "out": tmp_path, **SMALL}
    stopped = Tagger.train(*splits, **given)
    assert stopped.about["interrupted"] and len(stopped.about["history"]) == 1
    same(load(tmp_path / "model", "cpu"), stopped)
    whole = Tagger.train(*splits, **given, resume=True)
    assert "interrupted" not in whole.about
    same(whole, tagger)
    same(load(tmp_path / "model", "cpu"), tagger)
    calls[:] = [None] * 12
    with pytest.raises(KeyboardInterrupt):
        Tagger.train(*splits, **given | {"out": None})


def test_a_run_ends_when_it_is_out_of_patience(splits):
    given = {"epochs": 30, "rate": 1e-9, "patience": 2}
    tagger = Tagger.train(splits[0][:12], splits[1][:6], **given, **SMALL)
    scores = [row["dev_f1"] for row in tagger.about["history"]]
    assert len(scores) < 30 and max(scores[-2:]) <= max(scores[:-2])


def test_a_folder_that_holds_a_run_is_not_written_over(splits, tmp_path):
    given = {"epochs": 1, "out": tmp_path, **SMALL}
    with pytest.raises(FileNotFoundError, match=r"^resume: expected a run to continue"):
        Tagger.train(*splits, **given, resume=True)
    first = Tagger.train(*splits, **given)
    with pytest.raises(ValueError, match=r"^out: expected a folder without a run, got"):
        Tagger.train(*splits, **given)
    for change, name in (
        ({"loss": "crf"}, "loss: expected hinge-l2"),
        ({"seed": 2}, "seed: expected 0"),
        ({"data": splits[0][:20]}, "data: expected"),
    ):
        other = {"data": splits[0], "dev": splits[1]} | given | change
        with pytest.raises(ValueError, match=f"^{name}.* as in the run to resume"):
            Tagger.train(**other, resume=True)
    again = Tagger.train(*splits, **given, overwrite=True)
    same(again, first)
    for option in ({"resume": True}, {"overwrite": True}):
        (name,) = option
        with pytest.raises(ValueError, match=f"^{name}: expected out, the folder of"):
            Tagger.train(*splits, **option)


def test_mixed_precision_trains(splits):
    trainer = {"precision": "bf16-mixed", "accelerator": "cpu"}
    given = {"epochs": 2, "rate": 1e-2, "trainer": trainer}
    history = Tagger.train(*splits, **given, **SMALL).about["history"]
    assert history[1]["loss"] < history[0]["loss"]


def test_labels_that_training_lacks_are_told(splits, capsys):
    new = TaggedSentence(["Orla", "left"], ["B-GOD", "O"])
    Tagger.train(splits[0], [*splits[1], new], epochs=1, **SMALL)
    assert "warning: dev has labels that training lacks, S-GOD (1)" in (
        capsys.readouterr().err
    )
    with pytest.raises(ValueError, match=r"^dev: expected labels that training has"):
        Tagger.train(splits[0], [new], epochs=1, **SMALL)


def test_loading_and_tagging_import_no_trainer(tagger, tmp_path):
    tagger.save(tmp_path)
    code = (
        "import sys; from smoothsp.models import load;"
        f"load({str(tmp_path)!r}, 'cpu').tag([['Ada', 'left']]);"
        "print(sorted(x for x in sys.modules if 'lightning' in x))"
    )
    assert run(sys.executable, "-c", code).stdout == "[]\n"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"epoch": 3},
            TypeError,
            r"^options: .*, got 'epoch', did you mean 'epochs'",
        ),
        ({"epochs": 0}, ValueError, "^epochs: expected at least 1, got 0"),
        ({"steps": 5, "epochs": 1}, ValueError, "^steps: expected steps or epochs"),
        ({"seed": -1}, ValueError, "^seed: expected at least 0, got -1"),
        ({"loss": "svm"}, ValueError, "^loss: expected one of hinge, .* got 'svm'"),
        ({"structure": "tree"}, ValueError, "^structure: expected one of chain, semi"),
        (
            {"structure": "semi-markov", "loss": "softmax"},
            ValueError,
            "^structure: expected chain with loss softmax",
        ),
        ({"loss": "crf", "mu": 1.0}, ValueError, "^mu: expected none with loss crf"),
        ({"loss": "hinge", "top_k": 2}, ValueError, "^top_k: expected none with loss"),
        ({"mu": 0.0}, ValueError, "^mu: expected a positive number, got 0.0"),
        ({"dropout": 1.0}, ValueError, "^dropout: expected at least 0, below 1, got"),
        ({"context": True}, ValueError, "^context: expected an encoder beside it"),
        (
            {"vectors": {"a": [1]}, "word_size": 3},
            ValueError,
            "^word_size: expected None with vectors",
        ),
        ({"trainer": {"device": 2}}, TypeError, "did you mean 'devices'"),
        ({"data": []}, ValueError, "^data: expected at least one example, got none"),
        ({"dev": [(["a"], [None])]}, ValueError, "^dev: expected a tag for each word"),
        ({"data": [(["a"], ["O", "O"])]}, ValueError, "data.* 2"),
        (
            {"data": [(["a"], [None])]},
            ValueError,
            "^dev: expected sentences with known",
        ),
        ({"data": [(["a"], ["O"])]}, ValueError, "^tags: expected named entities"),
        (
            {"data": [(["a", "b"], ["B-X", "Q-X"])]},
            ValueError,
            "expected .* for BIO, got 'Q-X'",
        ),
        ({"data": 3}, TypeError, "^data: expected"),
        ({"data": "no such file"}, FileNotFoundError, "no such file"),
    ],
)
def test_what_does_not_fit_is_named(change, error, message):
    given = {"data": [(["a"], ["O"]), (["b", "c"], ["O", "B-X"])]}
    with pytest.raises(error, match=message):
        Tagger.train(**given | change)


def test_settings_of_the_training_are_kept(tagger):
    settings = tagger.about["settings"]
    options = asdict(tagger_training.Options(epochs=2, **SMALL))
    assert settings.items() >= (options | {"mu": 1.0, "top_k": 5}).items()
