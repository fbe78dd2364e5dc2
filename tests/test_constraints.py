"""What `constraints.bio` allows, against the definition of each encoding."""

import copy
import itertools
import pickle

import pytest
import torch

from smoothsp.constraints import bio
from smoothsp.metrics import spans

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
SCHEMES = {
    scheme: ["O", *(f"{p}-{kind}" for kind in "XY" for p in prefixes)]
    for scheme, prefixes in PREFIXES.items()
}
RENAMED = {"BILOU": {"E": "L", "S": "U"}, "BMES": {"I": "M"}}
RENAMED["BMEWO"] = {"I": "M", "S": "W"}
MIRRORED = {"IOE2": "BIO", "IOE1": "IOB1"}


def encodings(scheme: str, length: int) -> set[tuple[str, ...]]:
    """Every labelling of a sentence that encodes some set of spans.

    Sentences are cut into pieces, each outside or a span of one type; no automaton.
    """
    if scheme == "IOB1":
        return {relabel_iob1(labels) for labels in encodings("BIO", length)}
    if scheme in MIRRORED:
        return {
            tuple(rename(label, {"B": "E"}) for label in reversed(labels))
            for labels in encodings(MIRRORED[scheme], length)
        }
    if scheme in RENAMED:
        return {
            tuple(rename(label, RENAMED[scheme]) for label in labels)
            for labels in encodings("BIOES", length)
        }
    if length == 0:
        return {()}
    found = set()
    for size, kind in itertools.product(range(1, length + 1), ("", "X", "Y")):
        if kind == "" and size > 1:
            continue
        for rest in encodings(scheme, length - size):
            found.add(piece(scheme, size, kind, rest) + rest)
    return found


def rename(label: str, names: dict[str, str]) -> str:
    return names.get(label[0], label[0]) + label[1:]


def piece(scheme: str, size: int, kind: str, rest: tuple[str, ...]) -> tuple[str, ...]:
    if kind == "":
        return ("O",)
    if scheme == "BIOES":
        prefixes = "S" if size == 1 else "B" + "I" * (size - 2) + "E"
    else:
        prefixes = "B" + "I" * (size - 1)
    return tuple(f"{p}-{kind}" for p in prefixes)


def relabel_iob1(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Keep B only where the label before has the same type; otherwise write I."""
    pairs = zip(("O", *labels), labels, strict=False)
    touches = [before[2:] == label[2:] for before, label in pairs]
    return tuple(
        label if same or label == "O" else "I" + label[1:]
        for same, label in zip(touches, labels, strict=True)
    )


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_exactly_the_encodings_of_spans_are_legal(scheme, length):
    labels = SCHEMES[scheme]
    if length == 4 and len(labels) > 5:
        labels = [label for label in labels if not label.endswith("Y")]
    start, transitions, end = bio(labels, scheme)
    found = set()
    for path in itertools.product(range(len(labels)), repeat=length):
        moves = all(transitions[i, j] for i, j in itertools.pairwise(path))
        if start[path[0]] and moves and end[path[-1]]:
            found.add(tuple(labels[i] for i in path))
    known = set(labels)
    assert found == {e for e in encodings(scheme, length) if set(e) <= known}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_legal_is_what_strict_reading_of_spans_keeps_whole(scheme):
    labels = SCHEMES[scheme][: 1 + len(PREFIXES[scheme])] + SCHEMES[scheme][-2:]
    start, transitions, end = bio(labels, scheme)
    for path in itertools.product(range(len(labels)), repeat=3):
        tags = [labels[i] for i in path]
        moves = all(transitions[i, j] for i, j in itertools.pairwise(path))
        legal = bool(start[path[0]] and moves and end[path[-1]])
        strict = spans(tags, scheme=scheme, strict=True)
        assert legal == (strict == spans(tags)), tags


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("prefixes", "scheme"),
    [
        ("BI", "BIO"),
        ("B", "BIO"),
        ("I", "IOB1"),
        ("IE", "IOE2"),
        ("E", "IOE2"),
        ("SBIE", "BIOES"),
        ("BE", "BIOES"),
        ("S", "BIOES"),
        ("BILU", "BILOU"),
        ("U", "BILOU"),
        ("BMES", "BMES"),
    ],
)
def test_the_scheme_is_found_from_the_labels(prefixes, scheme):
    labels = ["O", *(f"{prefix}-{kind}" for kind in "XY" for prefix in prefixes)]
    assert equal(bio(labels), bio(labels, scheme))


@pytest.mark.parametrize(("alias", "scheme"), [("IOB2", "BIO"), ("IOBES", "BIOES")])
def test_schemes_have_second_names(alias, scheme):
    assert equal(bio(SCHEMES[scheme], alias), bio(SCHEMES[scheme], scheme))


def test_a_prefix_alone_is_a_label():
    assert equal(bio(["O", "B", "I"]), bio(["O", "B-X", "I-X"]))


def test_types_may_hold_dashes():
    labels = ["O", "B-GPE-LOC", "I-GPE-LOC", "B-GPE-ORG", "I-GPE-ORG"]
    transitions = bio(labels).transitions
    assert transitions[1, 2]
    assert not transitions[3, 2]


@pytest.mark.parametrize(
    ("labels", "scheme", "message"),
    [
        (["O", "B-X"], "IO", "scheme: "),
        (["O", "X"], None, "labels: "),
        (["O", "B-"], None, "labels: "),
        (["O", "E-X"], "BIO", "labels: "),
        (["O", "B-X", "L-X", "S-X"], None, "labels: "),
        (["O", "L-X"], "BIOES", "labels: "),
    ],
)
def test_labels_that_the_scheme_does_not_know_are_named(labels, scheme, message):
    with pytest.raises(ValueError, match=message):
        bio(labels, scheme)


@pytest.mark.parametrize(
    ("labels", "scheme", "forbidden"),
    [(["O"], None, ["O"]), (["I-X"], "BIO", []), (["B-X", "I-X"], "BIOES", [])],
)
def test_labels_of_no_sequence_are_refused(labels, scheme, forbidden):
    message = "labels: expected some that may start and end .* with forbidden = "
    with pytest.raises(ValueError, match=message):
        bio(labels, scheme, forbidden=forbidden)


def test_labels_are_kept_by_copies():
    allowed = bio(["O", "B-X"])
    for kept in (pickle.loads(pickle.dumps(allowed)), copy.deepcopy(allowed)):
        assert kept.labels == ("O", "B-X")
        start, _, _ = kept
        assert torch.equal(start, allowed.start)
