"""Tagging schemes: recognised, and rewritten in one another."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from smoothsp import schemes
from tests import sweeps

TYPES = ["PER", "LOC", "creative-work"]
# prefixes of a span's first, inner and last token, and of one that is all of it
SHAPES = {
    "IOB1": "IIII",
    "BIO": "BIIB",
    "IOE1": "IIII",
    "IOE2": "IIEE",
    "BIOES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
    "BMEWO": "BMEW",
}


@st.composite
def span_lists(draw):
    """Spans (type, first, last) in order, and the length of their sentence."""
    parts = st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(TYPES))
    spans, position = [], 0
    for gap, length, kind in draw(st.lists(parts, max_size=6)):
        position += gap
        spans.append((kind, position, position + length - 1))
        position += length
    return spans, position + draw(st.integers(0, 2))


def written_out(spans, length, scheme):
    """The tags of some spans by the definition of the scheme, span by span."""
    tags = ["O"] * length
    first_, inside, last_, single = SHAPES[scheme]
    for kind, first, last in spans:
        for t in range(first, last + 1):
            tags[t] = f"{inside}-{kind}"
        tags[first], tags[last] = f"{first_}-{kind}", f"{last_}-{kind}"
        if first == last:
            tags[first] = f"{single}-{kind}"
        others = [(k, *ends) for k, *ends in spans if k == kind]
        if scheme == "IOB1" and any(end == first - 1 for _, _, end in others):
            tags[first] = f"B-{kind}"
        if scheme == "IOE1" and any(begin == last + 1 for _, begin, _ in others):
            tags[last] = f"E-{kind}"
    return tags


@pytest.mark.parametrize("scheme", SHAPES)
@settings(max_examples=60 if sweeps.long else 15)
@given(drawn=span_lists(), to=st.sampled_from([*SHAPES]))
def test_conversion_keeps_the_spans_and_writes_the_scheme(scheme, drawn, to):
    spans, length = drawn
    tags = written_out(spans, length, scheme)
    converted = schemes.convert(tags, to, scheme)
    assert converted == written_out(spans, length, to)
    assert schemes.convert(converted, scheme, to) == tags


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES"])
@settings(max_examples=60 if sweeps.long else 15)
@given(data=st.data(), to=st.sampled_from([*SHAPES]))
def test_any_tags_keep_the_spans_that_seqeval_sees(scheme, data, to):
    prefixes = sorted({*SHAPES[scheme], "B"})
    possible = ["O", *(f"{p}-{kind}" for p in prefixes for kind in TYPES)]
    tags = data.draw(st.lists(st.sampled_from(possible), max_size=12))
    converted = schemes.convert(tags, to, scheme)
    assert converted == written_out(get_entities(tags), len(tags), to)
    assert schemes.convert(converted, to, to) == converted


@pytest.mark.parametrize("scheme", SHAPES)
@given(drawn=st.lists(span_lists(), max_size=4))
def test_the_scheme_of_any_corpus_is_found(drawn, scheme):
    # what two schemes write alike is written in either: one span is in none but this
    whole = {"BMES": 3, "BMEWO": 3, "BIOES": 3, "BILOU": 3}.get(scheme, 1)
    both = [("PER", 0, whole - 1), ("PER", whole, whole), ("LOC", whole + 1, whole + 1)]
    corpus = [(both, whole + 2), *drawn]
    tags = [written_out(spans, length, scheme) for spans, length in corpus]
    assert schemes.detect(tags) == scheme


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        # a slip, then several
        (["I-PER", "O", "I-LOC", "O", "B-LOC"], "IOB1"),
        (["B-PER", "O", "B-LOC", "O", "I-LOC"], "BIO"),
        (["B-PER", "O", "B-LOC", "O", "U-LOC"], "BIO"),
        (["B-PER", "E-PER", "O", "S-LOC", "B-LOC"], "BIOES"),
        (["O"], "BIO"),
        ([], "BIO"),
        # unknown neighbours do not say where a span begins
        ([None, "I-PER", None, "I-LOC", None, "O", "B-PER"], "BIO"),
        (["B", "I", "O"], "BIO"),
        (["DET", "NOUN", "O"], "plain"),
        (["DET", "B", "I"], "plain"),
        (["DET", "B-NOUN", "?"], "BIO"),
    ],
)
def test_the_scheme_is_that_of_most_spans(tags, scheme):
    assert schemes.detect([tags]) == scheme


def test_prefixes_alone_are_spans_of_one_type():
    assert schemes.convert(["B", "I", "O", "B"], "BIOES", "BIO") == ["B", "E", "O", "S"]


def test_plain_tags_are_spans_of_one_token():
    tags = ["NOUN", "NOUN", "O", "-LRB-"]
    spans = ["S-NOUN", "S-NOUN", "O", "S--LRB-"]
    assert schemes.convert(tags, "BIOES", "plain") == spans
    assert schemes.convert(spans, "plain", "BIOES") == tags


@pytest.mark.parametrize(
    ("tags", "to", "scheme", "message"),
    [
        (["O"], "IOBS", "BIO", "to: "),
        (["O"], "BIO", "bio", "scheme: "),
        (["O", "S-PER"], "BIOES", "BIO", "for BIO, got 'S-PER' at position 1"),
        ([""], "BIOES", "BIO", "tags: expected .*, got '' at position 0"),
        (["B-"], "BIOES", "BIO", "tags: expected .*, got 'B-' at position 0"),
    ],
)
def test_conversion_refuses_what_the_scheme_lacks(tags, to, scheme, message):
    with pytest.raises(ValueError, match=message):
        schemes.convert(tags, to, scheme)
