"""Chains small enough to write all labellings down, in plain numpy."""

import itertools

import numpy as np
from scipy import sparse

from smoothsp.linear.problems import ChainProblem


def random_rows(rng, positions, features, density=0.5):
    """Sparse features in CSR form."""
    X = rng.normal(size=(positions, features))
    return sparse.csr_matrix(X * (rng.random(X.shape) < density))


def random_chain(seed=0, n=6, S=3, d=5, longest=4, **options):
    """A chain problem whose labellings are not separable."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=n)
    P = lengths.sum()
    labels = rng.integers(S, size=P)
    labels[:S] = np.arange(S)[: min(S, P)]
    return ChainProblem(
        random_rows(rng, P, d), labels, lengths=lengths, num_labels=S, **options
    )


def dense_rows(problem, i):
    """X_i."""
    X = sparse.csr_matrix(
        (problem.values, problem.indices, problem.indptr),
        shape=(len(problem.labels), problem.num_features),
    )
    return X[problem.offsets[i] : problem.offsets[i + 1]].toarray()


def gold(problem, i):
    return problem.labels[problem.offsets[i] : problem.offsets[i + 1]]


def phi(problem, i, y):
    """The features of a labelling, laid out as w."""
    w = np.zeros(problem.num_weights)
    W, A, start, end = problem.split(w)
    for t, x in enumerate(dense_rows(problem, i)):
        W[:, y[t]] += x
    for t in range(1, len(y)):
        A[y[t - 1], y[t]] += 1
    if len(y):
        start[y[0]] += 1
        end[y[-1]] += 1
    return w


def cost(problem, i, y):
    wrong = sum(problem.cost[g, j] for g, j in zip(gold(problem, i), y, strict=True))
    return problem.cost_scale[i] * wrong


def labellings(problem, i):
    T = problem.offsets[i + 1] - problem.offsets[i]
    return list(itertools.product(range(problem.num_labels), repeat=T))


def corners(problem, i):
    """psi and loss of all labellings, as arrays, with the labellings."""
    outputs = labellings(problem, i)
    here = phi(problem, i, gold(problem, i))
    psi = np.array([here - phi(problem, i, y) for y in outputs])
    return psi, np.array([cost(problem, i, y) for y in outputs]), outputs
