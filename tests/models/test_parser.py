"""A parser: its training, its folder, and how its trees are shown."""

import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from parsing import dependency_grammar
from smoothsp.data import DependencyTree, dependencies
from smoothsp.models import Parser, files, load, parser_training
from smoothsp.models.biaffine import STRUCTURES, Biaffine
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.training_setup import split_dev
from smoothsp.models.word_vectors import ParserSizes
from tests.models.encoders import write_encoder
from tests.models.resumed import check_resuming
from tests.models.test_tagger import TEXTS

LABELS = ["nsubj", "obj", "root", "root:other"]
SENTENCES = [
    ["Ada", "met", "Bob", "."],
    ["Lake", "Holm"],
    [],
    ["x"],
    ["Naïve", "日本", "2"],
]
TRAIN, DEV = dependency_grammar.make(train=24, dev=6)
SMALL = {"epochs": 2, "hidden": 6}
SIZES = ParserSizes(word=4, hidden=5, arc=6, label=3, sibling=4)


def made(structure="spanning-tree", encoder=None, **options):
    torch.manual_seed(0)
    vocabulary = Vocabulary.from_sentences(SENTENCES, [])
    network = Biaffine(vocabulary, LABELS, SIZES, structure, encoder)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight))
    return Parser(network, vocabulary, LABELS, {"seed": 0}, **options)


@pytest.fixture(scope="module")
def parser():
    return made()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_loaded_parser_answers_as_the_one_that_was_saved(structure, tmp_path):
    parser = made(structure, tokenizer="blanks")
    parser.save(tmp_path)
    again = load(tmp_path, "cpu")
    assert again.parse(SENTENCES) == parser.parse(SENTENCES)
    assert (again.about, again.tokenizer) == ({"seed": 0}, "blanks")
    assert again.structures == [
        x for x in STRUCTURES if x in (structure, *STRUCTURES[:2])
    ]
    for sentence, found in zip(SENTENCES, again.parse(SENTENCES), strict=True):
        assert found.words == sentence
        assert len(found.heads) == len(found.labels) == len(sentence)
        # one root, named so, and nothing else is
        roots = [head == 0 for head in found.heads]
        assert sum(roots) == (len(sentence) > 0)
        assert [label.startswith("root") for label in found.labels] == roots


@pytest.mark.parametrize("structure", STRUCTURES)
def test_trees_are_the_best_of_all(structure):
    parser = made(structure)
    words = SENTENCES[0]
    batch = Corpus(parser.vocabulary, [words]).batch(torch.tensor([0]))
    with torch.no_grad():
        trees = parser.network.trees(parser.network(batch), torch.tensor([4]))
        best = -torch.inf
        for heads in itertools.product(range(5), repeat=4):
            try:
                score = trees.score(torch.tensor([heads])).item()
            except ValueError:
                continue
            best = max(best, score)
    [found] = parser.parse([words])
    assert found.score == pytest.approx(best, rel=1e-5)


def test_batches_and_other_structures(parser, monkeypatch):
    whole = parser.parse(SENTENCES)
    monkeypatch.setattr("smoothsp.models.parser.MAX_BATCH_SCORES", 20)
    for found in (parser.parse(SENTENCES, batch_size=1), parser.parse(SENTENCES)):
        assert [x.heads for x in found] == [x.heads for x in whole]
        assert [x.labels for x in found] == [x.labels for x in whole]
    projective = parser.parse(SENTENCES, structure="projective")
    for one, other in zip(projective, whole, strict=True):
        assert one.score <= other.score + 1e-4
    with pytest.raises(ValueError, match="structure: expected one of spanning-tree"):
        parser.parse(SENTENCES, structure="sibling")


@pytest.mark.parametrize(
    ("structure", "expected"),
    [("spanning-tree", [(8, 4)]), ("sibling", [(4, 1), (2, 4), (2, 4)])],
)
def test_scores_of_a_batch_have_bounded_memory(structure, expected, monkeypatch):
    parser, shapes, forward = made(structure), [], Biaffine.forward
    # eight sentences of four words have 128 pairs of words, two have 128 triples
    monkeypatch.setattr("smoothsp.models.parser.MAX_BATCH_SCORES", 128)

    def watched(self, batch):
        shapes.append(tuple(batch.mask.shape))
        return forward(self, batch)

    monkeypatch.setattr(Biaffine, "forward", watched)
    parser.parse([["x"]] * 4 + [["a", "b", "c", "d"]] * 4)
    assert shapes == expected


@pytest.mark.parametrize("tokenizer", ["treebank", "blanks"])
def test_offsets_lead_to_the_words_in_the_users_text(tokenizer):
    pytest.importorskip("nltk")
    found = made(tokenizer=tokenizer).parse(TEXTS)
    for text, parsed in zip(TEXTS, found, strict=True):
        assert parsed.text == text
        assert parsed.words == [text[start:end] for start, end in parsed.places]
        assert "".join(parsed.words) == "".join(text.split())
    assert ("n't" in found[2].words) == (tokenizer == "treebank")
    assert made(tokenizer=tokenizer).parse(TEXTS[2]) == found[2:3]


def test_threads_share_a_parser(parser):
    expected = parser.parse(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(parser.parse, SENTENCES) for _ in range(8)]
        assert all(run.result() == expected for run in runs)


def test_an_encoder_is_kept_in_the_folder(tmp_path):
    pytest.importorskip("transformers")
    encoder = Encoder.pretrained(write_encoder(tmp_path / "encoder"), mixed=True)
    parser = made(encoder=encoder)
    parser.save(tmp_path / "model")
    again = load(tmp_path / "model", "cpu")
    assert again.parse(SENTENCES) == parser.parse(SENTENCES)
    assert again.network.encoder.mix.shape == (3,)
    # it matters
    with torch.no_grad():
        again.network.encoder.scale.zero_()
    assert again.parse(SENTENCES) != parser.parse(SENTENCES)


def test_what_shows_a_tree(parser):
    pytest.importorskip("nltk")
    [found] = parser.parse("Ada  met Bob.")
    rows = [line.split("\t") for line in found.conllu().splitlines()[1:-1]]
    assert found.conllu().startswith("# text = Ada met Bob.\n1\tAda\t_\t")
    assert found.conllu().endswith("\n\n")
    assert [row[1] for row in rows] == ["Ada", "met", "Bob", "."]
    assert [int(row[6]) for row in rows] == found.heads
    assert [row[7] for row in rows] == found.labels
    assert [row[9] for row in rows] == ["_", "_", "SpaceAfter=No", "_"]
    assert all(len(row) == 10 for row in rows)
    written = json.loads(found.json())
    assert (written["heads"], written["labels"]) == (found.heads, found.labels)
    assert [found.text[a:b] for a, b in written["places"]] == found.words
    [broken] = parser.parse([["a\tb"]])
    with pytest.raises(ValueError, match="conllu: expected words without tabs"):
        broken.conllu()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"structure": "tree"}, "ValueError: structure: 'tree'"),
        ({"labels": ["a", "a"]}, "labels: expected each once"),
        ({"sizes": {"hidden": 10**6}}, r"expected \(2000000,\) for root as in"),
        ({"sizes": {"dropout": 2}}, "dropout: 2"),
        ({"tokenizer": "x"}, "expected tokenizer to be one of treebank, blanks"),
    ],
)
def test_an_edited_folder_is_refused(change, message, parser, tmp_path):
    parser.save(tmp_path)
    config, content = files.read(tmp_path)
    files.write(tmp_path, config | change, content)
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path, "cpu")
    assert re.match(re.escape(str(tmp_path)), str(caught.value))


# --- training ---


def test_a_parser_is_trained_on_files_trees_and_dictionaries(tmp_path):
    first = Parser.train(TRAIN, DEV, **SMALL)
    history = first.about["history"]
    assert len(history) == 2 and 0 < history[1]["loss"] < history[0]["loss"]
    scores = first.evaluate(DEV)
    assert list(scores) == ["las", "uas"]
    assert scores["las"] == max(row["las"] for row in history)
    paths = [tmp_path / name for name in ("train.conllu", "dev.conllu")]
    for path, part in zip(paths, (TRAIN, DEV), strict=True):
        path.write_text(dependencies.to_conllu(part))
    rows, tuples = [], []
    for part in (TRAIN, DEV):
        tuples.append([(tree.words, tree.heads, tree.labels) for tree in part])
        names = ("tokens", "heads", "deprel")
        rows.append([dict(zip(names, x, strict=True)) for x in tuples[-1]])
    losses = [row["loss"] for row in history]
    for given in ([str(path) for path in paths], rows, tuples):
        other = Parser.train(*given, **SMALL)
        assert [row["loss"] for row in other.about["history"]] == losses
        assert other.parse(SENTENCES) == first.parse(SENTENCES)
    assert first.evaluate(paths[1]) == first.evaluate(rows[1]) == scores
    projective = first.evaluate(DEV, structure="projective")
    assert 0 < projective["las"] <= projective["uas"]


# every loss, and every structure
@pytest.mark.parametrize(
    ("structure", "loss"),
    [
        ("projective", "hinge-l2"),
        ("spanning-tree", "perturbed"),
        ("sibling", "crf"),
        *(
            pytest.param(structure, loss, marks=pytest.mark.long)
            for structure in STRUCTURES
            for loss in ("crf", "hinge", "hinge-l2", "perturbed")
        ),
    ],
)
def test_every_loss_learns_for_every_structure(structure, loss):
    parser = Parser.train(TRAIN, DEV, structure=structure, loss=loss, **SMALL)
    first, second = parser.about["history"]
    assert 0 < second["loss"] < first["loss"]
    assert parser.network.structure == structure


def test_an_encoder_is_trained_along(tmp_path):
    pytest.importorskip("transformers")
    path = str(write_encoder(tmp_path / "encoder"))
    before = Encoder.pretrained(path).model.state_dict()
    parser = Parser.train(TRAIN[:20], DEV, encoder=path, epochs=1, hidden=5)
    assert parser.network.encoder.mix is not None
    after = parser.network.encoder.model.state_dict()
    moved = [not torch.equal(before[name], after[name]) for name in before]
    assert sum(moved) > len(moved) / 2


def test_one_sentence_in_ten_is_held_out():
    options = {"epochs": 1, "hidden": 4}
    held = Parser.train(TRAIN, **options).about
    given = Parser.train(*split_dev(TRAIN), **options).about
    assert held["settings"] == given["settings"]
    assert held["history"][0]["las"] == given["history"][0]["las"]


def test_long_sentences_are_left_out_of_the_training(capsys):
    long = DependencyTree(["a"] * 101, list(range(101)), ["root"] + ["dep"] * 100)
    Parser.train([*TRAIN[:5], long], DEV, epochs=1, hidden=4)
    assert "left out 1 sentences of over 100 words" in capsys.readouterr().err
    with pytest.raises(ValueError, match="data: expected sentences of at most 100 wor"):
        Parser.train([long], DEV)


def test_labels_that_training_lacks_are_named(capsys):
    parser = Parser.train(TRAIN, DEV, epochs=1, hidden=4)
    heads = [tree.heads for tree in DEV]
    labels = [["root" if head == 0 else "agent" for head in own] for own in heads]
    other = [
        DependencyTree(tree.words, tree.heads, names)
        for tree, names in zip(DEV, labels, strict=True)
    ]
    assert parser.evaluate(other)["uas"] == parser.evaluate(DEV)["uas"]
    assert "data has labels that training lacks, agent (" in capsys.readouterr().err


def test_a_loss_that_is_no_number_ends_the_run(monkeypatch):
    class Wrong(torch.nn.Module):
        def forward(self, structure, gold):
            return structure.score(gold).sum() * torch.inf

    monkeypatch.setattr(parser_training, "_build_criterion", lambda _: Wrong())
    with pytest.raises(ValueError, match=r"loss: expected a finite .* of size"):
        Parser.train(TRAIN, DEV, epochs=1, hidden=5)


@pytest.mark.long
def test_a_run_that_is_killed_between_epochs_goes_on_bit_for_bit(tmp_path):
    def run(out, **more):
        return Parser.train(TRAIN, DEV, out=out, epochs=3, hidden=6, **more)

    check_resuming(run, tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structur": "x"}, TypeError, "options: .* got 'structur', did you mean 'str"),
        (
            {"structure": "tree"},
            ValueError,
            "structure: expected one of spanning-tree,",
        ),
        (
            {"loss": "mse"},
            ValueError,
            "loss: expected one of crf, hinge, hinge-l2, per",
        ),
        ({"epochs": 0}, ValueError, "epochs: expected at least 1, got 0"),
        (
            {"encoder_rate": -1.0},
            ValueError,
            "encoder_rate: expected a positive number",
        ),
        ({"resume": True}, ValueError, "resume: expected out"),
        ({"trainer": {"device": 2}}, TypeError, "got 'device', did you mean 'devices'"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(options, error, message):
    with pytest.raises(error, match=message) as caught:
        Parser.train(TRAIN, DEV, **options)
    assert "\n" not in str(caught.value)
