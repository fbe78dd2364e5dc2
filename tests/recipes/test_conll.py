"""Corpora of tagged words, with their tags in one scheme."""

import pytest

from corpora import conll

FOUR_COLUMNS = """\
-DOCSTART- -X- -X- O

Tarnholm NNP B-NP I-LOC
sleeps VBZ B-VP O

-DOCSTART- -X- -X- O

Orla NNP B-NP I-PER
Wren NNP I-NP I-PER
Thorne NNP I-NP B-PER
left VBD B-VP O
"""


@pytest.fixture
def write(tmp_path):
    def write(content, name="corpus.txt"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def test_all_splits_are_loaded_in_one_scheme(write, tmp_path):
    write(FOUR_COLUMNS, "eng.train")
    write("Orla\tB-PER\nWren\tI-PER\n", "eng.testa")
    write("Orla\tS-PER\nin\tO\nUtopia\tS-CREED\n", "eng.testb")
    splits = conll.load(tmp_path)
    assert splits.scheme == "BIOES"
    assert [s.tags for s in splits.train] == [
        ["S-LOC", "O"],
        ["B-PER", "E-PER", "S-PER", "O"],
    ]
    assert splits.dev[0].tags == ["B-PER", "E-PER"]
    assert splits.test[0].tags == ["S-PER", "O", "S-CREED"]
    assert splits.labels == ["O", *(f"{p}-{t}" for t in ("LOC", "PER") for p in "BIES")]
    bio = conll.load(tmp_path, "BIO")
    assert bio.train[1].tags == ["B-PER", "I-PER", "B-PER", "O"]
    assert bio.labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]


def test_a_corpus_without_test_file_is_loaded(write, tmp_path):
    write("a O\n", "train")
    write("a O\n", "dev")
    assert conll.load(tmp_path).test is None


def test_plain_tags_are_labels_of_words(write, tmp_path):
    write("a DET\nb NOUN\n", "train")
    write("a DET\n", "dev")
    splits = conll.load(tmp_path)
    assert (splits.written, splits.labels) == ("plain", ["S-DET", "S-NOUN"])


def test_documents_are_parted_by_an_empty_sentence(write):
    found, _ = conll.read_as(write(FOUR_COLUMNS), "BIOES")
    assert conll.by_document(found, [s.words for s in found]) == [
        ["Tarnholm", "sleeps"],
        [],
        ["Orla", "Wren", "Thorne", "left"],
    ]
    one, _ = conll.read_as(
        write(FOUR_COLUMNS.replace("-DOCSTART- -X- -X- O", "")), "BIO"
    )
    assert len(conll.by_document(one, [s.tags for s in one])) == 2
