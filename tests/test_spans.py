"""Spans and their F1, in all tagging schemes, against seqeval and by hand."""

import itertools
import warnings

import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from smoothsp.metrics import span_f1, spans

PREFIXES = {
    "BIO": "BI",
    "IOB1": "BI",
    "IOE2": "IE",
    "IOE1": "IE",
    "BIOES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
    "BMEWO": "BMEW",
}
THEIRS = {
    "BIO": seqeval.scheme.IOB2,
    "IOB1": seqeval.scheme.IOB1,
    "IOE2": seqeval.scheme.IOE2,
    "IOE1": seqeval.scheme.IOE1,
    "BIOES": seqeval.scheme.IOBES,
    "BILOU": seqeval.scheme.BILOU,
}
# What seqeval knows by other prefixes, if at all.
TO_BIOES = {"BILOU": str.maketrans("LU", "ES"), "BMES": str.maketrans("M", "I")}
TO_BIOES["BMEWO"] = str.maketrans("MW", "IS")
SCORES = (
    seqeval.metrics.precision_score,
    seqeval.metrics.recall_score,
    seqeval.metrics.f1_score,
)


def labels(scheme):
    kinds = ("", "-X", "-Y")
    return ["O", *(f"{p}{kind}" for p in PREFIXES[scheme] for kind in kinds)]


@st.composite
def corpora(draw, schemes=tuple(PREFIXES)):
    """Draw a scheme, and gold and predicted sentences, often ill-formed."""
    scheme = draw(st.sampled_from(schemes))
    label = st.sampled_from(labels(scheme))
    gold = draw(st.lists(st.lists(label, max_size=8), min_size=1, max_size=4))
    changes = st.tuples(st.booleans(), label)
    predicted = []
    for sentence in gold:
        size = len(sentence)
        changed = draw(st.lists(changes, min_size=size, max_size=size))
        pairs = zip(sentence, changed, strict=True)
        predicted.append([new if change else old for old, (change, new) in pairs])
    return scheme, gold, predicted


def translated(scheme, sentences):
    """The same in prefixes that seqeval's default mode reads."""
    table = TO_BIOES.get(scheme, {})
    return [[t[0].translate(table) + t[1:] for t in tags] for tags in sentences]


def theirs(scheme, tags):
    """Strictly read spans by seqeval, which has no M."""
    if scheme.startswith("BM"):
        scheme, (tags,) = "BIOES", translated(scheme, [tags])
    found = seqeval.scheme.Tokens(list(tags), THEIRS[scheme]).entities
    return {(entity.tag, entity.start, entity.end - 1) for entity in found}


@given(corpora())
@example(("BIO", [["B", "I", "O"]], [["B", "O", "O"]]))
@example(("BILOU", [["B-X", "L-X", "U-X"]], [["B-X", "I-X", "U-X"]]))
def test_span_f1_equals_seqeval(drawn):
    scheme, gold, predicted = drawn
    sides = translated(scheme, gold), translated(scheme, predicted)
    for found, score in zip(span_f1(gold, predicted), SCORES, strict=True):
        assert found == pytest.approx(score(*sides, zero_division=0), abs=1e-12)
    named = span_f1(gold, predicted, scheme=scheme)
    assert named == span_f1(gold, predicted)


@given(corpora(("BIO", "IOE2", "BIOES", "BILOU")))
def test_strict_span_f1_equals_strict_seqeval(drawn):
    scheme, gold, predicted = drawn
    options = {"mode": "strict", "scheme": THEIRS[scheme], "zero_division": 0}
    ours = span_f1(gold, predicted, scheme=scheme, strict=True)
    for found, score in zip(ours, SCORES, strict=True):
        # without a span it divides an empty array by another
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = score(gold, predicted, **options)
        assert found == pytest.approx(expected, abs=1e-12)


def sequences(scheme):
    """All that are short, with two types, and with tags without a type."""
    typed = [label for label in labels(scheme) if label == "O" or "-" in label]
    yield from itertools.product(typed, repeat=4 if len(typed) < 6 else 3)
    untyped = [label for label in labels(scheme) if "-" not in label]
    yield from itertools.product(untyped, repeat=4)


def begins_ill(tags):
    """Has it a B that touches no span of its type, where IOB1 writes I?"""
    pairs = itertools.pairwise(("O", *tags))
    return any(b[0] == "B" and (a == "O" or a[1:] != b[1:]) for a, b in pairs)


def is_single(tags):
    """Has it an E that does not end a span of several tokens?"""
    pairs = itertools.pairwise(("O", *tags))
    return any(b[0] == "E" and (a[0] != "I" or a[1:] != b[1:]) for a, b in pairs)


@pytest.mark.parametrize("scheme", PREFIXES)
def test_all_short_sequences_read_as_in_seqeval(scheme):
    for tags in sequences(scheme):
        ((plain),) = translated(scheme, [tags])
        assert spans(tags) == set(get_entities(plain)), tags
        strict = spans(tags, scheme=scheme, strict=True)
        assert strict <= spans(tags)
        # Where seqeval is wrong: it counts [1, 1] of "B-X I-X" in IOB1, and misses
        # [0, 0] of "E-X I-X" in IOE1, of which its source says so.
        if scheme == "IOB1" and begins_ill(tags):
            continue
        if scheme == "IOE1" and (is_single(tags) or strict != spans(tags)):
            continue
        assert strict == theirs(scheme, tags), tags


@pytest.mark.parametrize(
    ("scheme", "tags", "lenient", "strict"),
    [
        ("BIO", "", [], []),
        ("BIO", "O O", [], []),
        ("BIO", "B-P I-P O B-L", [("P", 0, 1), ("L", 3, 3)], ...),
        ("BIO", "B-P I-L", [("P", 0, 0), ("L", 1, 1)], [("P", 0, 0)]),
        ("BIO", "O I-M-A I-M-A", [("M-A", 1, 2)], []),
        ("BIO", "B I O I", [("_", 0, 1), ("_", 3, 3)], [("_", 0, 1)]),
        ("IOB1", "I-P I-P B-P O", [("P", 0, 1), ("P", 2, 2)], ...),
        ("IOB1", "I-P I-L", [("P", 0, 0), ("L", 1, 1)], ...),
        ("IOB1", "B-P I-P", [("P", 0, 1)], []),
        ("IOE2", "I-P E-P E-P I-P", [("P", 0, 1), ("P", 2, 2), ("P", 3, 3)], 2),
        ("IOE1", "E-P I-P O I-P", [("P", 0, 0), ("P", 1, 1), ("P", 3, 3)], ...),
        ("IOE1", "I-P E-P O", [("P", 0, 1)], []),
        ("BIOES", "S-P S-P", [("P", 0, 0), ("P", 1, 1)], ...),
        ("BIOES", "B-P I-P E-P S-L", [("P", 0, 2), ("L", 3, 3)], ...),
        ("BIOES", "B-P E-P I-P", [("P", 0, 1), ("P", 2, 2)], 1),
        ("BILOU", "B-P I-P L-P U-L", [("P", 0, 2), ("L", 3, 3)], ...),
        ("BILOU", "B-P I-P O", [("P", 0, 1)], []),
        ("BMES", "B-P M-P E-P S-L", [("P", 0, 2), ("L", 3, 3)], ...),
        ("BMES", "M-P E-P", [("P", 0, 1)], []),
    ],
)
def test_spans_read_by_hand(scheme, tags, lenient, strict):
    assert spans(tags.split()) == set(lenient)
    kept = lenient if strict is ... else strict
    kept = lenient[:kept] if isinstance(kept, int) else kept
    assert spans(tags.split(), scheme=scheme, strict=True) == set(kept)


def test_the_numbers_are_fractions_of_all_spans():
    gold = [["B-X", "I-X", "O"], ["B-Y", "O"], ["B-X"]]
    predicted = [["B-X", "I-X", "B-X"], ["B-X", "O"], ["O"]]
    # one of three proposed, one of three wanted
    assert span_f1(gold, predicted) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert span_f1(gold, gold) == (1.0, 1.0, 1.0)
    assert span_f1([["O"]], [["O"]]) == (0.0, 0.0, 0.0)
    assert span_f1([], []) == (0.0, 0.0, 0.0)


def test_arrays_and_second_names_of_schemes_are_taken():
    tags = np.array(["B-X", "I-X", "O"])
    assert spans(tags, scheme="IOB2", strict=True) == {("X", 0, 1)}
    assert span_f1([np.array(["S-X"])], [("S-X",)], scheme="IOBES") == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("B-X I-X O", "BIO"),
        ("I-X I-Y O", "IOB1"),
        ("I-X B-X O I-X", "IOB1"),
        ("I-X E-X E-Y", "IOE2"),
        ("O I-X E-X I-X", "IOE1"),
        ("B-X E-X S-X", "BIOES"),
        ("B-X L-X O", "BILOU"),
        ("B-X M-X E-X", "BMES"),
    ],
)
def test_strict_reading_guesses_the_scheme_and_says_so(tags, scheme):
    tags = tags.split()
    with pytest.warns(
        UserWarning, match=f"scheme: .*strict.*: guessed {scheme}"
    ) as log:
        found = spans(tags, strict=True)
    assert found == spans(tags, scheme=scheme, strict=True)
    assert log[0].filename == __file__
    # what is predicted does not decide
    with pytest.warns(UserWarning, match=f"guessed {scheme}") as log:
        span_f1([tags], [["O"] * len(tags)], strict=True)
    assert log[0].filename == __file__


def test_prefixes_of_no_scheme_are_read_with_a_warning():
    with pytest.warns(UserWarning, match=r"'X-A' \(2 times\), 'NN' \(1 times\)") as log:
        found = spans(["X-A", "X-A", "NN", "O", "B-A"])
    assert found == {("X-A", 0, 1), ("NN", 2, 2), ("A", 4, 4)}
    assert log[0].filename == __file__
    with pytest.warns(UserWarning, match="got the prefixes B, E, L"):
        assert span_f1([["B-X", "E-X"]], [["B-X", "L-X"]]) == (1.0, 1.0, 1.0)
    with pytest.warns(UserWarning, match="and 1 others"):
        spans(list("abcdef"))
    with (
        pytest.warns(UserWarning, match="expected O and the prefixes"),
        pytest.warns(UserWarning, match="guessed BIO"),
    ):
        assert spans(["B-A", "Z"], strict=True) == {("A", 0, 0)}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["O", "B-A"], ["O", "B-A"]), TypeError, r"gold: .*got 'O' as.*give \[tags\]"),
        (([["O"]], ["O"]), TypeError, "predicted: expected sentences.*got 'O'"),
        (("O", "O"), TypeError, "gold: expected sentences.*got 'O'"),
        (([["O"], [1]], [["O"], ["O"]]), TypeError, "gold: .*got 1 at sentence 1, pos"),
        (([["O"]], [torch.tensor([1])]), TypeError, "predicted: .*at sentence 0, pos"),
        ((None, [["O"]]), TypeError, "gold: expected sentences, .*got NoneType"),
        (([["O"]], [None]), TypeError, "predicted: .*got NoneType as sentence 0"),
        (([["O"]], [["O"], ["O"]]), ValueError, "predicted: .*1 sentences.*got 2"),
        (([["O"], ["O"]], [["O"], ["O", "O"]]), ValueError, "1 labels.*nce 1, got 2"),
    ],
)
def test_what_are_no_sentences_of_tags_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        span_f1(*arguments)


@pytest.mark.parametrize(
    ("tags", "scheme", "error", "message"),
    [
        ("B-A", None, TypeError, "tags: expected a list of tags, got 'B-A'"),
        ([None], None, TypeError, "tags: expected tags as strings, got None at pos"),
        (["O", "S-A"], "BIO", ValueError, "tags, position 1: .*for BIO, got 'S-A'"),
        (["I-A", "e-A"], "IOE2", ValueError, "expected O, I-TYPE, E-TYPE for IOE2"),
        (None, None, TypeError, "tags: expected a list of tags, got NoneType"),
        (["O"], {}, ValueError, "scheme: expected one of BIO, .*IOBES, got {}"),
        (["O"], "IO", ValueError, "scheme: expected one of BIO, .*IOBES, got 'IO'"),
    ],
)
def test_what_are_no_tags_of_the_scheme_is_refused(tags, scheme, error, message):
    with pytest.raises(error, match=message):
        spans(tags, scheme=scheme)


def test_a_tag_that_the_scheme_lacks_is_placed():
    with pytest.raises(ValueError, match=r"predicted, sentence 1, position 0: .*'M-X'"):
        span_f1([["O"], ["O"]], [["O"], ["M-X"]], scheme="BIOES")
