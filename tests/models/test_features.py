"""Features of words, and batches: of like lengths, not padded to a long sentence."""

import dataclasses
import zlib

import pytest
import torch

from smoothsp.models.features import Corpus, Vocabulary


def batches(lengths, size):
    corpus = Corpus(
        Vocabulary.from_sentences([["a"]], []), [["a"] * n for n in lengths]
    )
    return [lengths[rows].tolist() for rows in corpus.batches_by_length(size)]


def test_batches_hold_so_many_sentences_the_shortest_first():
    lengths = torch.randint(1, 500, (200,), generator=torch.Generator().manual_seed(0))
    ordered = lengths.sort().values
    assert batches(lengths, 64) == [part.tolist() for part in ordered.split(64)]
    assert batches(torch.full((64,), 600), 64) == [[600] * 64]


def test_a_sentence_that_is_far_longer_is_a_batch_of_its_own():
    lengths = torch.tensor([4000, *[3] * 63, 1, 9000])
    assert batches(lengths, 64) == [[1, *[3] * 63], [4000, 9000]]
    assert batches(lengths, 60) == [[1, *[3] * 59], [*[3] * 4, 4000], [9000]]
    assert batches(lengths, 128) == [[1, *[3] * 63], [4000, 9000]]


SHAPES = {
    "Ada-2000!!!": ("Xxx-00!!", "Xx-0!"),
    "iiiBB\nc": ("xxXX\nx", "xX\nx"),
    "\u01c5\u00b2\u0663\u4e00": ("\u01c500\u4e00", "\u01c50\u4e00"),
}


@pytest.mark.parametrize("word", SHAPES)
def test_features_of_a_word_are_those_of_its_definition(word):
    shape, short = SHAPES[word]
    vocabulary = Vocabulary.from_sentences([[word] * 3], [])
    vocabulary = dataclasses.replace(vocabulary, buckets=2**18)
    assert vocabulary.shapes == [shape]
    batch = Corpus(vocabulary, [["new", word]]).batch(torch.tensor([0]))
    row = batch.rows[0, 1]
    assert batch.table.word[row] == batch.table.shape[row] == 2
    letters = [2 + vocabulary.characters.index(c) for c in word]
    assert batch.table.characters[row].tolist() == letters + [0] * (20 - len(word))
    flags = [
        word[0].isupper(),
        word.isupper(),
        word.islower(),
        word.isdigit(),
        any(c.isdigit() for c in word),
        not any(c.isalnum() for c in word),
        "-" in word or "." in word,
        any(c.isupper() for c in word[1:]),
    ]
    assert batch.table.flags[row].tolist() == flags
    # the feature of the window that joins short shapes of a word and of that before it
    mix, value = 0x9E3779B97F4A7C15, 31
    for form in ("x", short):
        value = value * mix % 2**64 ^ zlib.crc32(f"short {form}".encode())
        value ^= value >> 29
    bucket = (value * mix % 2**64 >> 32) % 2**18
    assert batch.window[1, 30] == bucket


def test_of_a_long_word_both_ends_are_read():
    word = "ab" * 6 + "cd" * 6
    table = Corpus(Vocabulary.from_sentences([[word]], []), [[word]]).table
    assert table.characters[1].tolist() == [2, 3] * 5 + [4, 5] * 5
