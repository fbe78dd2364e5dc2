import hashlib
from collections import Counter, defaultdict

import pytest
from seqeval.metrics import f1_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOBES, Entities

from corpora import toy_corpus
from corpora.column_files import Sentence
from corpora.conll import Splits
from ner.look_up import look_up_baseline
from smoothsp.schemes import convert, detect

SHA256 = "54a27b5b327b0865c20110fe2194885b1846730ed2c41b21bbf1611d31575110"


@pytest.fixture(scope="module")
def corpus():
    return toy_corpus.make()


def entities(sentences):
    return [get_entities(sentence.tags) for sentence in sentences]


def test_sizes_are_those_asked_for(corpus):
    assert [len(corpus.train), len(corpus.dev), len(corpus.test)] == [2000, 500, 500]
    small = toy_corpus.make(train=3, dev=2, test=1)
    assert [len(small.train), len(small.dev), len(small.test)] == [3, 2, 1]


def test_a_seed_fixes_the_corpus_and_a_longer_split_extends_a_shorter(corpus):
    assert toy_corpus.make() == corpus
    small = toy_corpus.make(train=30, dev=20, test=10)
    assert small == Splits(
        corpus.train[:30], corpus.dev[:20], corpus.test[:10], "BIOES"
    )
    assert toy_corpus.make(seed=1, train=30, dev=20, test=10).train != small.train


def test_the_default_corpus_is_the_same_on_every_machine(corpus):
    text = "\n".join(
        f"{word} {tag}"
        for sentence in (*corpus.train, *corpus.dev, *corpus.test)
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
    )
    # A change here changes every number reported on the corpus.
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256


def test_splits_share_no_sentence(corpus):
    parts = [{tuple(s.words) for s in part} for part in (corpus.train, corpus.dev)]
    parts.append({tuple(s.words) for s in corpus.test})
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_every_sentence_is_well_formed_bioes(corpus):
    for sentence in corpus.train + corpus.dev + corpus.test:
        tags = sentence.tags
        assert len(sentence.words) == len(tags) > 1
        assert all(word and not word.isspace() for word in sentence.words)
        assert tags == convert(tags, "BIOES", "BIOES")
        strict = {
            (e.tag, e.start, e.end - 1) for e in Entities([tags], IOBES).entities[0]
        }
        assert strict == set(get_entities(tags))
    assert set(corpus.labels) == {tag for s in corpus.train for tag in s.tags}


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES"])
def test_the_scheme_is_a_choice_that_keeps_the_spans(corpus, scheme):
    chosen = toy_corpus.make(train=200, dev=1, test=1, scheme=scheme)
    assert chosen.scheme == detect(s.tags for s in chosen.train) == scheme
    assert entities(chosen.train) == entities(corpus.train[:200])


def test_all_four_types_occur_and_some_spans_are_long(corpus):
    spans = [span for sentence in entities(corpus.dev) for span in sentence]
    counts = Counter(kind for kind, _, _ in spans)
    assert set(counts) == {"PER", "LOC", "ORG", "MISC"}
    assert min(counts.values()) > 50
    lengths = Counter(last - first + 1 for _, first, last in spans)
    assert min(lengths[1], lengths[2], lengths[3], lengths[4]) > 10


def test_many_names_are_new_or_of_several_types(corpus):
    kinds = defaultdict(set)
    for sentence in corpus.train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            kinds[word].add(tag[2:])
    inside = [
        word
        for sentence in corpus.test
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
        if tag != "O"
    ]
    assert sum(word not in kinds for word in inside) > 0.15 * len(inside)
    assert sum(len(kinds[word]) > 1 for word in inside) > 0.15 * len(inside)
    assert {"", "PER", "LOC", "ORG"} <= kinds["Stone"]


def test_headlines_stand_in_capitals_or_without_any(corpus):
    lines = ["".join(s.words) for s in corpus.train]
    assert sum(line.isupper() for line in lines) > 50
    assert sum(line.islower() for line in lines) > 50


def test_look_up_fails_on_new_sentences_but_not_on_known_ones(corpus):
    for part in (corpus.dev, corpus.test):
        predicted = look_up_baseline(corpus.train, part)
        assert 0.40 < f1_score([s.tags for s in part], predicted) < 0.55


def test_context_tells_the_type_of_names_that_have_several(corpus):
    """The words beside a shared name, counted in training, beat the name itself."""
    shared = set(toy_corpus.SHARED_NAMES)
    by_name, by_context = defaultdict(Counter), defaultdict(Counter)

    def names(sentences):
        for s in sentences:
            for i, (word, tag) in enumerate(zip(s.words, s.tags, strict=True)):
                if word in shared and tag[0] == "S":
                    yield word, ([".", *s.words][i], s.words[i + 1]), tag

    for word, context, tag in names(corpus.train):
        by_name[word][tag] += 1
        by_context[context][tag] += 1
    asked = [
        (by_name[word], by_context[context], tag)
        for word, context, tag in names(corpus.dev + corpus.test)
        if by_context[context]
    ]
    by_name_right = sum(name.most_common(1)[0][0] == tag for name, _, tag in asked)
    by_context_right = sum(
        beside.most_common(1)[0][0] == tag for _, beside, tag in asked
    )
    assert by_context_right > 1.3 * by_name_right


def test_look_up_takes_the_most_frequent_tag_and_repairs():
    train = [
        Sentence(["Orla", "Wren", "left"], ["B-PER", "E-PER", "O"]),
        Sentence(["Wren", "left"], ["S-LOC", "O"]),
        Sentence(["Wren", "Wren"], ["B-PER", "E-PER"]),
    ]
    test = [
        Sentence(["Orla", "Wren", "left", "Utopia"], ["O"] * 4),
        Sentence(["Wren", "left", "Orla"], ["O"] * 3),
    ]
    assert look_up_baseline(train, test) == [
        ["B-PER", "E-PER", "O", "O"],
        ["S-PER", "O", "S-PER"],
    ]
