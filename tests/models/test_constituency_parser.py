"""A constituency parser: its training, its folder and its trees."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from parsing import nested_entities, phrase_grammar
from smoothsp.data import ConstituencyTree, trees
from smoothsp.models import ConstituencyParser, Constituents, files, load
from smoothsp.models import constituency_parser as module
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.span_scores import SpanScores
from smoothsp.models.training_setup import split_dev
from smoothsp.models.word_vectors import ParserSizes
from smoothsp.oracles import SpanTree
from tests.models.encoders import write_encoder
from tests.models.resumed import check_resuming
from tests.sweeps import thinned

LABELS = ["NP", "S", "S+VP", "TOP"]
SENTENCES = [["Ada", "met", "(", "Bob", ")"], ["Lake"], [], ["x", "y"], ["日本", "2"]]
SMALL = {"epochs": 2, "hidden": 6}
DRAWN = {
    False: phrase_grammar.make(train=24, dev=6),
    True: nested_entities.make(train=24, dev=6),
}


def made(labels=LABELS, levels=0, encoder=None, **options):
    torch.manual_seed(0)
    vocabulary = Vocabulary.from_sentences(SENTENCES, [])
    sizes = ParserSizes(word=4, hidden=5, arc=6)
    network = SpanScores(vocabulary, labels, sizes, encoder)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight))
    return ConstituencyParser(
        network, vocabulary, labels, {"seed": 0}, levels=levels, **options
    )


@pytest.fixture(scope="module")
def parser():
    return made()


def test_a_loaded_parser_answers_as_the_one_that_was_saved(tmp_path):
    parser = made(["LOC", "ORG", "ORG+LOC", "TOP"], 2, tokenizer="blanks")
    parser.save(tmp_path)
    again = load(tmp_path, "cpu")
    found = again.parse(SENTENCES)
    assert found == parser.parse(SENTENCES)
    assert (again.about, again.tokenizer, again.levels) == ({"seed": 0}, "blanks", 2)
    for sentence, one in zip(SENTENCES, found, strict=True):
        assert one.words == sentence
        assert {label for label, _, _ in one.spans} <= {"LOC", "ORG"}
        tree = ConstituencyTree(sentence, one.spans)
        assert all(level <= 2 for level, _ in trees.levels(tree))


def test_trees_are_the_best_of_all(parser):
    words = SENTENCES[0][:4]
    read = [word.replace("(", "-LRB-") for word in words]
    batch = Corpus(parser.vocabulary, [read]).batch(torch.tensor([0]))
    with torch.no_grad():
        structure = SpanTree(parser.network(batch))
    [found] = parser.parse([words])
    assert found.score == pytest.approx(structure.decode()[0].item(), rel=1e-5)
    best = structure.decode()[1][0]
    assert sorted(found.spans) == sorted(
        (LABELS[best[i, j] - 1], i, j) for i, j in (best > 0).nonzero().tolist()
    )
    # the outer ones come first
    assert found.spans == sorted(found.spans, key=lambda s: (s[1], -s[2]))


def test_batches_do_not_change_trees(parser, monkeypatch):
    shapes, forward = [], SpanScores.forward

    def watched(self, batch):
        shapes.append(tuple(batch.mask.shape))
        return forward(self, batch)

    monkeypatch.setattr(SpanScores, "forward", watched)
    monkeypatch.setattr(module, "MAX_BATCH_SPANS", 100)
    short, long = ["a", "dog", "slept"], ["a", "dog", "slept"] * 4
    found = parser.parse([long, *[short] * 18, long])
    assert shapes == [(11, 3), (7, 3), (1, 12), (1, 12)]
    assert [one.words for one in found] == [long, *[short] * 18, long]
    for one in found:
        [alone] = parser.parse([one.words])
        assert alone.spans == one.spans
        assert alone.score == pytest.approx(one.score, rel=1e-5)
    assert parser.parse([]) == []


def test_threads_share_a_parser(parser):
    expected = parser.parse(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(parser.parse, SENTENCES) for _ in range(8)]
        assert all(run.result() == expected for run in runs)


def test_texts_are_cut_and_a_text_that_is_no_sentence_is_refused(parser):
    pytest.importorskip("nltk")
    [found] = parser.parse("Ada (or Bob) left.")
    assert found.words == ["Ada", "(", "or", "Bob", ")", "left", "."]
    assert [found.text[a:b] for a, b in found.places] == found.words
    with pytest.raises(
        ValueError,
        match=r"sentences: expected at most 400 words, got 401 at sentence 1",
    ):
        parser.parse([["a"], ["old"] * 401])


def test_what_shows_a_tree():
    found = Constituents(["(", "b"], [("S", 0, 1), ("NP+X", 0, 0)], 1.25, "( b")
    assert found.brackets() == "( (S (NP (X (XX -LRB-))) (XX b)) )\n"
    written = json.loads(found.json())
    assert written["spans"] == [["S", 0, 1], ["NP+X", 0, 0]]
    assert (written["words"], written["score"]) == (["(", "b"], 1.25)
    nested = Constituents(["a", "b"], [("O", 0, 1), ("L", 1, 1)], 0.0, levels=3)
    assert nested.columns() == "1\ta\tB-O\tO\tO\n2\tb\tI-O\tB-L\tO\n\n"
    broken = Constituents(["a\tb"], [("X", 0, 0)], 0.0)
    with pytest.raises(ValueError, match="brackets: expected words without white spa"):
        broken.brackets()
    with pytest.raises(ValueError, match="columns: expected words without tabs"):
        broken.columns()


def test_an_encoder_is_trained_along_and_kept_in_the_folder(tmp_path):
    pytest.importorskip("transformers")
    encoder = str(write_encoder(tmp_path / "encoder"))
    train, dev = DRAWN[False]
    parser = ConstituencyParser.train(train[:10], dev, encoder=encoder, **SMALL)
    assert parser.about["settings"]["encoder"] == encoder
    parser.save(tmp_path / "model")
    again = load(tmp_path / "model", "cpu")
    assert again.evaluate(dev) == parser.evaluate(dev)
    with torch.no_grad():
        again.network.encoder.scale.zero_()
    words = [tree.words for tree in dev]
    assert again.parse(words) != parser.parse(words)


# --- training ---


@pytest.mark.parametrize("nested", [False, True])
def test_a_parser_is_trained_on_files_trees_and_dictionaries(nested, tmp_path):
    train, dev = DRAWN[nested]
    options = {**SMALL, "nested": nested}
    first = ConstituencyParser.train(train, dev, **options)
    history = first.about["history"]
    assert len(history) == 2 and history[1]["loss"] < history[0]["loss"]
    scores = first.evaluate(dev)
    assert scores["f1"] == max(row["f1"] for row in history)
    assert next(iter(scores)) == "f1" and ("outer" in scores) == nested
    if nested:
        paths = [tmp_path / name for name in ("train.tsv", "dev.tsv")]
        for path, part in zip(paths, (train, dev), strict=True):
            path.write_text("".join(trees.to_level_columns(tree, 2) for tree in part))
    else:
        paths = [tmp_path / name for name in ("train.mrg", "dev.mrg")]
        for path, part in zip(paths, (train, dev), strict=True):
            path.write_text("\n".join(map(trees.to_brackets, part)))
    rows, tuples = [], []
    for part in (train, dev):
        tuples.append([(tree.words, tree.spans, tree.tags) for tree in part])
        fields = ("tokens", "spans", "tags")
        rows.append([dict(zip(fields, x, strict=True)) for x in tuples[-1]])
    losses = [row["loss"] for row in history]
    for given in ([str(path) for path in paths], rows, tuples):
        other = ConstituencyParser.train(*given, **options)
        assert [row["loss"] for row in other.about["history"]] == losses
        assert other.parse([["Ada", "left"]]) == first.parse([["Ada", "left"]])
    assert first.evaluate(paths[1]) == first.evaluate(rows[1]) == scores


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("loss", thinned(["hinge-l2", "hinge", "crf"], 3))
def test_every_loss_learns(loss, nested):
    train, dev = DRAWN[nested]
    parser = ConstituencyParser.train(train, dev, loss=loss, nested=nested, **SMALL)
    first, second = parser.about["history"]
    assert 0 < second["loss"] < first["loss"]


def test_one_sentence_in_ten_is_held_out_and_few_are_used_twice():
    train, _ = DRAWN[False]
    options = {"epochs": 1, "hidden": 4}
    held = ConstituencyParser.train(train, **options).about
    given = ConstituencyParser.train(*split_dev(train), **options).about
    few = ConstituencyParser.train(train[:9], **options).about
    twice = ConstituencyParser.train(train[:9], train[:9], **options).about
    for one, other in ((held, given), (few, twice)):
        assert one["settings"] == other["settings"]
        assert one["history"][0]["loss"] == other["history"][0]["loss"]


def test_trees_without_a_label_of_the_whole_and_with_two_of_some_words():
    words = ["a", "b", "c"]
    loose = ConstituencyTree(words, [("NP", 0, 1), ("X", 0, 1)])
    parser = ConstituencyParser.train([loose] * 4, epochs=1, hidden=4)
    assert parser.labels == ["NP+X", "TOP"]


@pytest.mark.long
@pytest.mark.parametrize("nested", [False, True])
def test_a_run_that_is_killed_between_epochs_goes_on_bit_for_bit(nested, tmp_path):
    train, dev = DRAWN[nested]
    options = {"epochs": 3, "hidden": 6, "nested": nested}

    def run(out, **more):
        return ConstituencyParser.train(train, dev, out=out, **options, **more)

    check_resuming(run, tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hiden": 3}, TypeError, "options: .* got 'hiden', did you mean 'hidden'"),
        (
            {"loss": "mse"},
            ValueError,
            "loss: expected one of crf, hinge, hinge-l2, got",
        ),
        ({"hidden": 0}, ValueError, "hidden: expected at least 1, got 0"),
        ({"seed": -1}, ValueError, "seed: expected at least 0, got -1"),
        ({"tokenizer": "x"}, ValueError, "tokenizer: expected one of treebank, blanks"),
        ({"encoder_rate": 0.0}, ValueError, "encoder_rate: expected a positive number"),
        ({"resume": True}, ValueError, "resume: expected out"),
        ({"data": []}, ValueError, "data: expected at least one example, got none"),
        (
            {"data": [(["a"] * 61, [])]},
            ValueError,
            "data: expected sentences of at most",
        ),
        (
            {"dev": [(["a"], [("Q", 0, 0)])]},
            ValueError,
            "dev: expected labels that tra",
        ),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(options, error, message):
    data = options.pop("data", [(["a", "b"], [("S", 0, 1)])])
    with pytest.raises(error, match=message) as caught:
        ConstituencyParser.train(data, options.pop("dev", None), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1, 2]}, "labels: expected strings"),
        ({"labels": 3}, "expected labels, got 3"),
        ({"labels": ["a", "a"]}, "labels: expected each once"),
        ({"sizes": {"hidden": "x"}}, "hidden: 'x'"),
        ({"sizes": {"wide": 3}}, "TypeError: .*unexpected keyword argument 'wide'"),
        # says which shape it should have, before any memory is taken
        ({"sizes": {"hidden": 10**6}}, r"expected \(.*\) for .* as in config"),
        ({"levels": -1}, "expected levels to be 0 to 100, got -1"),
        ({"levels": 10**9}, "expected levels to be 0 to 100, got 1000000000"),
        ({"levels": True}, "expected levels to be 0 to 100, got True"),
        ({"tokenizer": "x"}, "expected tokenizer to be one of treebank, blanks"),
        ({"format": "smoothsp.models.Tagger"}, "expected"),
        ({"auto_map": {}}, "auto_map: expected fields of a smoothsp.models.Const"),
    ],
)
def test_an_edited_folder_is_refused(change, message, parser, tmp_path):
    parser.save(tmp_path)
    config, content = files.read(tmp_path)
    files.write(tmp_path, config | change, content)
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path, "cpu")
    assert re.match(re.escape(str(tmp_path)), str(caught.value))
