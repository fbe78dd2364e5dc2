"""Sentences in batches: of like lengths, and not padded to a single long one."""

import torch

from smoothsp.models.features import Corpus, Vocabulary


def batches(lengths, size):
    corpus = Corpus(Vocabulary.of([["a"]], []), [["a"] * n for n in lengths])
    return [lengths[rows].tolist() for rows in corpus.in_order_of_length(size)]


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
