"""Mixtures are timed on what a tagger decodes."""

import torch

import sparse_mixtures
from smoothsp.models.features import Vocabulary
from smoothsp.models.network import TaggerNetwork
from smoothsp.models.tagger import Tagger
from smoothsp.oracles import SparseMAP

SENTENCES = [["Ada", "met", "Bob"], ["Bob", "left", "Rome"]]


def test_a_row_tells_sizes_outputs_and_times():
    torch.manual_seed(0)
    vocabulary = Vocabulary.of(SENTENCES, [])
    labels = ["O", "B-PER", "I-PER", "E-PER", "S-PER"]
    tagger = Tagger(TaggerNetwork(vocabulary, labels), vocabulary, labels)
    chain = sparse_mixtures.chain_of(tagger, SENTENCES)
    row = sparse_mixtures.measure(chain, rounds=2)
    assert row[:3] == ("2", "3", "5")
    outputs = (SparseMAP(chain).weights > 0).sum(1).double().mean()
    assert float(row[3]) == round(float(outputs), 1)
    assert all(float(x) > 0 for x in row[4:])
