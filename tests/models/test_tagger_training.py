"""Training from Python: the recipe's tagger, options that do not fit, Ctrl-C."""

from itertools import chain

import pytest
import torch

import conll_ner
from corpora import conll, toy_corpus
from smoothsp.metrics import span_f1
from smoothsp.models import Tagger, load
from smoothsp.models.training import Training
from smoothsp.schemes import convert
from tests.recipes.runs import write_corpus
from tests.sweeps import thinned

pytestmark = pytest.mark.usefixtures("blank")
SMALL = {"hidden": 8, "word_size": 6, "batch": 4}


def parts(scheme="BIO", sizes=(40, 12, 4)):
    splits = toy_corpus.make(3, *sizes, scheme=scheme)
    return [
        ([s.words for s in x], [s.tags for s in x]) for x in (splits.train, splits.dev)
    ]


@pytest.mark.parametrize("scheme", thinned(["BIO", "IOB1", "BILOU"], 3, 1))
def test_the_tagger_is_that_of_the_recipe(scheme, tmp_path, capsys):
    (words, tags), dev = parts("BIO")
    folder = tmp_path / "corpus"
    write_corpus(folder, (40, 12, 4))
    read = conll.load(folder)
    assert [s.words for s in read.train] == words
    conll_ner.main(
        conll_ner.Config(str(folder), epochs=2, out=tmp_path / "run", **SMALL)
    )
    written = [convert(row, source="BIO", target=scheme) for row in tags]
    capsys.readouterr()
    tagger = Tagger.train(iter(words), iter(written), dev=dev, epochs=2, **SMALL)
    output = capsys.readouterr()
    assert not output.out
    assert output.err.splitlines()[0].startswith("epoch 1/2  loss ")
    theirs = load(tmp_path / "run" / "model", "cpu")
    for name, weights in theirs.network.state_dict().items():
        assert torch.equal(tagger.network.state_dict()[name].cpu(), weights), name
    assert (tagger.labels, tagger.vocabulary) == (theirs.labels, theirs.vocabulary)
    assert (tagger.scheme, theirs.scheme) == (scheme, "BIO")
    found = [t.tags for t in tagger.tag(dev[0])]
    assert found == [
        convert(t.tags, source="BIO", target=scheme) for t in theirs.tag(dev[0])
    ]
    tagger.save(tmp_path / "mine")
    assert load(tmp_path / "mine", "cpu").tag(dev[0]) == tagger.tag(dev[0])


def test_one_sentence_in_ten_is_held_out_if_no_others_choose():
    (words, tags), _ = parts()
    run = Training(words, tags)
    assert (len(run.corpus), len(run.dev)) == (36, 4)
    run = Training(words[:5], tags[:5])
    assert (len(run.corpus), len(run.dev)) == (5, 5)
    # those whose tags are not known are never held out
    tags[10] = [None] * len(tags[10])
    run = Training(words, tags)
    assert (len(run.corpus), len(run.dev)) == (36, 4)
    assert run.allowed is not None


@pytest.mark.long
def test_plain_tags_are_learnt():
    (words, tags), _ = parts()
    plain = [["NAME" if t != "O" else "WORD" for t in row] for row in tags]
    tagger = Tagger.train(words, plain, steps=60, rate=2e-2, patience=8, **SMALL)
    assert (tagger.scheme, tagger.labels) == ("plain", ["S-NAME", "S-WORD"])
    found = [t.tags for t in tagger.tag(words)]
    pairs = list(zip(chain(*found), chain(*plain), strict=True))
    assert sum(a == b for a, b in pairs) > 0.9 * len(pairs)


def test_prefixes_without_types_are_learnt(tmp_path):
    (words, tags), _ = parts()
    bare = [[t[0] for t in row] for row in tags]
    tagger = Tagger.train(words, bare, steps=60, rate=2e-2, **SMALL)
    assert (tagger.types, tagger.labels) == (["_"], ["O", "B", "I", "E", "S"])
    tagger.save(tmp_path)
    found = load(tmp_path, "cpu").tag(words, confidence=True)
    assert span_f1(bare, [t.tags for t in found])[2] > 0.8
    assert {tag for t in found for tag in t.tags} == {"O", "B", "I"}
    assert all(0 < s.confidence <= 1 for t in found for s in t.spans)


def test_control_c_returns_the_best_round(monkeypatch):
    (words, tags), dev = parts()
    first = Tagger.train(words, tags, dev=dev, epochs=1, **SMALL)
    seen = []

    def on_round(run):
        seen.append(len(run.history))
        if len(run.history) == 1:
            raise KeyboardInterrupt

    stopped = Tagger.train(words, tags, dev=dev, epochs=1, on_round=on_round, **SMALL)
    assert seen == [0, 1] and stopped.about["interrupted"]
    for name, weights in first.network.state_dict().items():
        assert torch.equal(stopped.network.state_dict()[name], weights), name

    def at_once(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Tagger.train(words, tags, dev=dev, epochs=1, on_round=at_once, **SMALL)


def test_a_run_ends_when_it_is_out_of_patience():
    (words, tags), dev = parts(sizes=(12, 6, 1))
    rounds = []
    Tagger.train(
        words, tags, dev=dev, epochs=30, rate=1e-9, patience=2, on_round=rounds.append,
        **SMALL,
    )  # fmt: skip
    scores = [row["dev_f1"] for row in rounds[0].history]
    assert len(scores) < 30 and max(scores[-2:]) <= max(scores[:-2])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"epoch": 3}, TypeError, "unexpected keyword argument 'epoch'"),
        ({"epochs": 0}, ValueError, "epochs: expected at least 1, got 0"),
        ({"loss": "svm"}, ValueError, "loss: expected one of hinge, .* got 'svm'"),
        (
            {"vectors": {"a": [1]}, "word_size": 3},
            ValueError,
            "word_size: expected None",
        ),
        (
            {"tags": [["O"]]},
            ValueError,
            "tags: expected the tags of 2 sentences, got 1",
        ),
        ({"tags": [["O"], ["O"]]}, ValueError, "2 tags, .* at sentence 1, got 1"),
        ({"tags": [["O"], ["O", "O"]]}, ValueError, "tags: expected named entities"),
        (
            {"tags": [["B-X"], ["O", "Q-X"]]},
            ValueError,
            "for BIO, got 'Q-X' at positio",
        ),
        ({"sentences": [], "tags": []}, ValueError, "at least one sentence, got none"),
        (
            {"dev": ([], [])},
            ValueError,
            "dev: expected at least one sentence, got none",
        ),
        (
            {"tags": [[None], ["O", None]]},
            ValueError,
            "dev: expected sentences with kno",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, error, message):
    given = {"sentences": [["a"], ["b", "c"]], "tags": [["O"], ["O", "B-X"]]}
    with pytest.raises(error, match=message):
        Tagger.train(**given | change)
