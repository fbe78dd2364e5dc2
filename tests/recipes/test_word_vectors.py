"""Word vectors: read, used, and refused with a reason."""

import pytest
import torch

from conll_ner import Config, main
from ner import word_vectors
from smoothsp.models import load


def test_word_vectors_are_read_by_normalised_word(vectors):
    found = word_vectors.read(vectors, set())
    assert {word: row.tolist() for word, row in found.items()} == {
        "the": [1, 2, 3],
        "0000": [4, 5, 6],
        ". . .": [0, 0, 1],
    }


def test_rare_words_of_a_long_file_are_kept_only_if_wanted(vectors, monkeypatch):
    monkeypatch.setattr(word_vectors, "NUM_FREQUENT", 1)
    assert list(word_vectors.read(vectors, {". . ."})) == ["the", ". . ."]


def test_a_first_line_with_counts_is_skipped(vectors):
    vectors.write_text("1 2\nthe 1 2\n")
    assert list(word_vectors.read(vectors, set())) == ["the"]


def test_training_starts_from_word_vectors(vectors, tiny, tmp_path):
    main(Config(tiny, embeddings=str(vectors), epochs=1, out=tmp_path))
    tagger = load(tmp_path / "model", "cpu")
    row = tagger.vocabulary.words.index(". . .") + 2
    start = torch.tensor([0.0, 0, 1])
    # No training sentence has it, so that no step moved it.
    assert torch.equal(tagger.network.emissions.word.weight[row], start)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers .* got 2 columns"),
        ("a 1 2\nb 1 2 3\n", "line 2: expected a word and 2 numbers .* got 4 columns"),
        ("a 1 2\n1 2\n", "line 2: expected a word and 2 numbers .* got 2 columns"),
        ("a\n", "line 1: expected a word and some numbers"),
        ("a 1 x\n", "line 1: expected 2 finite numbers after the word"),
        ("a 1 nan\n", "line 1: expected 2 finite numbers after the word"),
        ("", "expected word vectors, got an empty file"),
    ],
)
def test_wrong_word_vectors_are_reported_with_their_line(content, message, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        word_vectors.read(path, set())


def test_missing_word_vectors_are_reported(tiny, tmp_path):
    with pytest.raises(FileNotFoundError, match="embeddings: expected a text file"):
        main(Config(tiny, embeddings=str(tmp_path / "none.txt"), out=tmp_path))


def test_a_line_of_many_gigabytes_takes_no_memory(tmp_path):
    """It has holes, so that it takes no place either."""
    path = tmp_path / "vectors.txt"
    with path.open("wb") as file:
        file.write(b"ada 1 2\n")
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"line 2: expected a word and its numbers"):
        word_vectors.read(path, set())
