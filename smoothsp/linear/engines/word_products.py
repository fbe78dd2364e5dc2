"""Inner products of the words of a sentence, where they save work."""

import numpy as np

from smoothsp._kernels.linear import frank_wolfe as kernels
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.inputs.arrays import zeros
from smoothsp.linear.problems import ChainProblem

# A product of two rows of D costs as much as adding so many entries of features up.
_ENTRIES = 2


def word_products(problem: ChainProblem) -> kernels.Products:
    """Products for the sentences that are short compared with their features."""
    s = problem.sentences
    lengths = np.diff(s.offsets)
    entries = s.indptr[s.offsets[1:]] - s.indptr[s.offsets[:-1]]
    pairs = lengths * (lengths + 1) // 2
    chosen = pairs <= _ENTRIES * entries
    ends = np.cumsum(np.where(chosen, pairs, 0))
    at = np.where(chosen, np.concatenate([[0], ends[:-1]]), -1)
    gram = np.zeros(int(ends[-1]))
    work = int((pairs * np.maximum(entries // np.maximum(lengths, 1), 1))[chosen].sum())
    run_rows(kernels.multiply_words, len(problem), work, s, at, gram)
    largest = int(entries[~chosen].max(initial=0))
    return kernels.Products(
        gram,
        at,
        np.full(problem.num_features if largest else 0, -1, np.int32),
        zeros(min(largest, problem.num_features) * s.P, np.float64),
    )
