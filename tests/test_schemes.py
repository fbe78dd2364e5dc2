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
    converted = schemes.convert(tags, source=scheme, target=to)
    assert converted == written_out(spans, length, to)
    assert schemes.convert(converted, source=to, target=scheme) == tags


@pytest.mark.parametrize("scheme", ["IOB1", "BIO", "BIOES"])
@settings(max_examples=60 if sweeps.long else 15)
@given(data=st.data(), to=st.sampled_from([*SHAPES]))
def test_any_tags_keep_the_spans_that_seqeval_sees(scheme, data, to):
    prefixes = sorted({*SHAPES[scheme], "B"})
    possible = ["O", *(f"{p}-{kind}" for p in prefixes for kind in TYPES)]
    tags = data.draw(st.lists(st.sampled_from(possible), max_size=12))
    converted = schemes.convert(tags, source=scheme, target=to, strict=False)
    assert converted == written_out(get_entities(tags), len(tags), to)
    assert schemes.convert(converted, source=to, target=to) == converted
    # strict: an error but for tags that the scheme writes so
    if tags == written_out(get_entities(tags), len(tags), scheme):
        assert schemes.convert(tags, source=scheme, target=to) == converted
    else:
        with pytest.raises(ValueError, match="strict=False reads malformed"):
            schemes.convert(tags, source=scheme, target=to)


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
    tags = schemes.convert(["B", "I", "O", "B"], source="BIO", target="BIOES")
    assert tags == ["B", "E", "O", "S"]


def test_plain_tags_are_spans_of_one_token():
    tags = ["NOUN", "NOUN", "O", "-LRB-"]
    spans = ["S-NOUN", "S-NOUN", "O", "S--LRB-"]
    assert schemes.convert(tags, source="plain", target="BIOES") == spans
    assert schemes.convert(spans, source="BIOES", target="plain") == tags


@pytest.mark.parametrize(
    ("tags", "to", "scheme", "message"),
    [
        (["O"], "IOBS", "BIO", "target: "),
        (["O"], "BIO", "bio", "source: "),
        (["O", "S-PER"], "BIOES", "BIO", "for BIO, got 'S-PER' at position 1"),
        ([""], "BIOES", "BIO", "tags: expected .*, got '' at position 0"),
        (["B-"], "BIOES", "BIO", "tags: expected .*, got 'B-' at position 0"),
        (
            ["O", "I-X", "I-X"],
            "BIOES",
            "BIO",
            "tags: expected 'B-X' at position 1 for BIO, got 'I-X'. detect",
        ),
    ],
)
def test_conversion_refuses_what_the_scheme_lacks(tags, to, scheme, message):
    with pytest.raises(ValueError, match=message):
        schemes.convert(tags, source=scheme, target=to)


NOTATIONS = {
    "b-per i-per o b-loc": "B-PER I-PER O B-LOC",
    "b-Per i-Per o": "B-Per I-Per O",
    "PER-B PER-I O LOC-B": "B-PER I-PER O B-LOC",
    "per_b per_i o": "B-PER I-PER O",
    "B_PER I_PER O B_LOC_x": "B-PER I-PER O B-LOC_x",
    "B:PER E:PER O": "B-PER E-PER O",
    "B/PER I/PER O": "B-PER I-PER O",
    "B|PER I|PER O": "B-PER I-PER O",
    "B-PER I-PER 0": "B-PER I-PER O",
    "b i o": "B I O",
    "B I 0": "B I O",
    "PER PER O": "I-PER I-PER O",
    "person-actor O O": "I-person-actor O O",
    # nothing else than what is said of it
    "B-PER I-PER O": "B-PER I-PER O",
    "B-geo I-geo O": "B-geo I-geo O",
    "O O": "O O",
    "B I O": "B I O",
    "DET NOUN VERB": "DET NOUN VERB",
    "nsubj aux:pass root": "nsubj aux:pass root",
    "0 1 2": "0 1 2",
    "NN , . O NN NN NN": "NN , . O NN NN NN",
}


@pytest.mark.parametrize("odd", [None, 1])
def test_tags_that_are_no_strings_are_refused(odd):
    message = f"tags: expected strings, got {odd} at position 1"
    for source, to in (("BIO", "IOB1"), ("plain", "plain")):
        with pytest.raises(TypeError, match=message):
            schemes.convert(["O", odd], source=source, target=to)
    with pytest.raises(TypeError, match=message):
        schemes.notation_of(["O", odd])
    with pytest.raises(TypeError, match="sentences: expected tags as strings or None"):
        schemes.detect([["O", 1]])


@pytest.mark.parametrize("tags", NOTATIONS)
def test_tags_are_read_and_written_as_most_are(tags):
    notation = schemes.notation_of(tags.split())
    found = [notation.normalise(tag) for tag in tags.split()]
    assert found == NOTATIONS[tags].split()
    assert [notation.write(tag) for tag in found] == tags.split()


def test_tags_of_another_notation_stay_as_they_are():
    many = 50 * ["B_PER", "I_PER", "O"]
    for odd in ("X_PER", "B-PER", "0", "b_PER", "PER"):
        notation = schemes.notation_of([*many, odd])
        assert notation.normalise("B_PER") == "B-PER"
        assert notation.normalise(odd) == odd
    assert str(schemes.notation_of(["per_b", "o"])) == "type_b and o"


@pytest.mark.parametrize("tags", ["PER LOC 0 0", "per o o", "PER PER O"])
def test_types_without_prefixes_have_any_tag_outside(tags):
    notation = schemes.notation_of(tags.split())
    assert (notation.only_types, notation.outside) == (True, tags[-1])
    assert [notation.write(notation.normalise(x)) for x in tags.split()] == tags.split()
    assert notation.normalise(tags[-1]) == "O"


@pytest.mark.parametrize(
    "tags", ["n v o o", "0 1 1 2", "NN1 0 VV0 NN1 NN1 JJ", "Q0 0 ,"]
)
def test_parts_of_speech_are_not_types_of_spans(tags):
    assert schemes.notation_of(tags.split()) == schemes.DEFAULT_NOTATION
