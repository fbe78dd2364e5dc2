import hashlib

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOBES, Entities

from corpora import toy_corpus
from ner.majority_baseline import majority_tags
from smoothsp.data import TaggedSentence
from smoothsp.schemes import convert, detect

SHA256 = "54a27b5b327b0865c20110fe2194885b1846730ed2c41b21bbf1611d31575110"


@pytest.fixture(scope="module")
def corpus():
    return toy_corpus.make()


def entities(sentences):
    return [get_entities(sentence.tags) for sentence in sentences]


def test_the_default_corpus_is_the_same_on_every_machine(corpus):
    text = "\n".join(
        f"{word} {tag}"
        for sentence in (*corpus.train, *corpus.dev, *corpus.test)
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
    )
    # A change here changes every number reported on the corpus.
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256


def test_every_sentence_is_well_formed_bioes(corpus):
    for sentence in corpus.train + corpus.dev + corpus.test:
        tags = sentence.tags
        assert len(sentence.words) == len(tags) > 1
        assert all(word and not word.isspace() for word in sentence.words)
        assert tags == convert(tags, source="BIOES", target="BIOES")
        strict = {
            (e.tag, e.start, e.end - 1) for e in Entities([tags], IOBES).entities[0]
        }
        assert strict == set(get_entities(tags))


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES"])
def test_the_scheme_is_a_choice_that_keeps_the_spans(corpus, scheme):
    chosen = toy_corpus.make(train=200, dev=1, test=1, scheme=scheme)
    assert detect(s.tags for s in chosen.train) == scheme
    assert entities(chosen.train) == entities(corpus.train[:200])


def test_look_up_takes_the_most_frequent_tag_and_repairs():
    train = [
        TaggedSentence(["Orla", "Wren", "left"], ["B-PER", "E-PER", "O"]),
        TaggedSentence(["Wren", "left"], ["S-LOC", "O"]),
        TaggedSentence(["Wren", "Wren"], ["B-PER", "E-PER"]),
    ]
    test = [
        TaggedSentence(["Orla", "Wren", "left", "Utopia"], ["O"] * 4),
        TaggedSentence(["Wren", "left", "Orla"], ["O"] * 3),
    ]
    assert majority_tags(train, test) == [
        ["B-PER", "E-PER", "O", "O"],
        ["S-PER", "O", "S-PER"],
    ]
