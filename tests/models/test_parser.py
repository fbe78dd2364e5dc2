"""A parser in a folder: what it answers, and how its trees are shown."""

import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from smoothsp.models import Parser, files, load
from smoothsp.models.biaffine import STRUCTURES, Biaffine
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.word_vectors import Sizes
from tests.models.encoders import write_encoder
from tests.models.test_tagger import TEXTS

LABELS = ["nsubj", "obj", "root", "root:other"]
SENTENCES = [
    ["Ada", "met", "Bob", "."],
    ["Lake", "Holm"],
    [],
    ["x"],
    ["Naïve", "日本", "2"],
]
SIZES = Sizes(word=4, hidden=5, arc=6, label=3, sibling=4)


def made(structure="spanning-tree", encoder=None, **options):
    torch.manual_seed(0)
    vocabulary = Vocabulary.of(SENTENCES, [])
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
    monkeypatch.setattr("smoothsp.models.parser.MOST_SCORES", 20)
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
    monkeypatch.setattr("smoothsp.models.parser.MOST_SCORES", 128)

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
    from smoothsp.models.encoder import Encoder

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
