"""Files of corpora, found by name."""

import pytest

from smoothsp.data import splits


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
    assert splits.find_splits(tmp_path) == splits.SplitFiles(train, dev, None)
    test = write("a O\n", names[2])
    assert splits.find_splits(str(tmp_path)) == splits.SplitFiles(train, dev, test)


def test_files_of_different_families_are_not_mixed(write, tmp_path):
    write("a O\n", "eng.train")
    write("a O\n", "dev.conll")
    train, dev = write("a O\n", "train.txt"), write("a O\n", "dev.txt")
    write("a O\n", "test.conll")
    assert splits.find_splits(tmp_path) == splits.SplitFiles(train, dev, None)


def test_a_folder_without_a_corpus_is_described(write, tmp_path):
    write("a O\n", "train.txt")
    write("a O\n", "holdout.txt")
    message = r"got holdout.txt, train.txt\. Looked for eng.train with .*Rename"
    with pytest.raises(FileNotFoundError, match=message):
        splits.find_splits(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="got an empty folder"):
        splits.find_splits(tmp_path / "empty")
    with pytest.raises(
        FileNotFoundError, match=r"nowhere: expected a folder.*got nothing"
    ):
        splits.find_splits(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="got a file"):
        splits.find_splits(tmp_path / "train.txt")
