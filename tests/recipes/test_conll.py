"""Corpora of tagged words: their files, found by name, and their tags in one scheme."""

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


@pytest.mark.parametrize(
    "names",
    [
        ("eng.train", "eng.testa", "eng.testb"),
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        ("train", "dev", "test"),
        ("train.txt", "valid.txt", "test.txt"),
        ("train.conll", "dev.conll", "test.conll"),
        ("train.tsv", "dev.tsv", "test.tsv"),
        ("train.iob", "valid.iob", "test.iob"),
        ("train.bio", "dev.bio", "test.bio"),
    ],
)
def test_the_usual_names_are_found_with_and_without_a_test_file(write, tmp_path, names):
    train, dev = (write("a O\n", name) for name in names[:2])
    write("a O\n", "unrelated.txt")
    assert conll.find_splits(tmp_path) == conll.SplitFiles(train, dev, None)
    test = write("a O\n", names[2])
    assert conll.find_splits(str(tmp_path)) == conll.SplitFiles(train, dev, test)


def test_files_of_different_families_are_not_mixed(write, tmp_path):
    write("a O\n", "eng.train")
    write("a O\n", "dev.conll")
    train, dev = write("a O\n", "train.txt"), write("a O\n", "dev.txt")
    write("a O\n", "test.conll")
    assert conll.find_splits(tmp_path) == conll.SplitFiles(train, dev, None)


def test_a_folder_without_a_corpus_is_described(write, tmp_path):
    write("a O\n", "train.txt")
    write("a O\n", "holdout.txt")
    message = r"got holdout.txt, train.txt\. Looked for eng.train with .*Rename"
    with pytest.raises(FileNotFoundError, match=message):
        conll.find_splits(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="got an empty folder"):
        conll.find_splits(tmp_path / "empty")
    with pytest.raises(
        FileNotFoundError, match=r"nowhere: expected a folder.*got nothing"
    ):
        conll.find_splits(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="got a file"):
        conll.find_splits(tmp_path / "train.txt")


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
