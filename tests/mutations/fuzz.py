"""Deliberate faults, and random structures that meet them.

Run as ``python -m tests.mutations.fuzz FOLDER 1``; see ``tests/mutations/runner.py``.
"""

import functools
import sys

from tests.fuzz.__main__ import mismatches
from tests.mutations.runner import report

CHAIN, CIRCUITS = "_kernels/chain/cpu/", "_kernels/circuits/cpu/"
SEARCHES = "_kernels/combinatorial/"

# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": (CHAIN + "forward_backward_float64", "", ""),
    "mistakes counted from the second label on": (
        CHAIN + "hinge",
        "wrong += j != z",
        "wrong += j != z and n > 0",
    ),
    "gradient of a move that ends where gold does": (
        CHAIN + "hinge",
        "if n > 0 and (i != y or j != z):",
        "if n > 0 and j != z:",
    ),
    "entropy that forgets scores to come": (
        CHAIN + "forward_backward_float64",
        "expected += distribution[s] * (prefix_mean[N - 1, s] + suffix_mean[s])",
        "expected += distribution[s] * prefix_mean[N - 1, s]",
    ),
    "worse chains without their emissions": (
        CHAIN + "k_best",
        "score += emissions[b, steps[b, n], j]",
        "score += 0.0",
    ),
    "shares of a product go to one factor": (
        CIRCUITS + "inside_outside",
        "store(mu, b, load(mu, b) + g)",
        "store(mu, b, load(mu, b))",
    ),
    "ties of the k best that are one": (
        CIRCUITS + "k_best",
        "if v > best and (v < score or (v == score and n > number)):",
        "if v > best and v < score:",
    ),
    "max-marginals of the first use": (
        CIRCUITS + "max_marginals",
        "store(outside, a, maximum(g + w, load(outside, a)))",
        "store(outside, a, g + w)",
    ),
    "the worst assignment listed first": (
        SEARCHES + "murty",
        "if value[i] < value[best_candidate] or",
        "if value[i] > value[best_candidate] or",
    ),
    "springs of the last child alone": (
        SEARCHES + "distance_transform",
        "total[parents[p]] += message",
        "total[parents[p]] = scores[b, parents[p]] + message",
    ),
    "intersections with the true box from its top": (
        SEARCHES + "box_search",
        "max(top, gold[0]),",
        "gold[0],",
    ),
    "paths along arcs that are banned": (
        SEARCHES + "shortest_paths",
        "if is_free[w] and not is_banned[e] and new_distance < distance[w]:",
        "if is_free[w] and new_distance < distance[w]:",
    ),
    "scores under a mask": (
        "oracles/multiclass",
        "log_probs = self._scores_or_zeros.log_softmax(1)",
        "log_probs = self._scores_or_zeros.softmax(1)",
    ),
}
# Structures of the kernels that a file's name begins with, and how many of each.
MET = {
    "hinge laws k_best": ("Chain",),
    "inside_outside k_best max_marginals": ("SpanTree", "Subset", "Tree"),
    "murty": ("Matching",),
    "distance_transform": ("PictorialStructure",),
    "box_search": ("BoxSearch",),
    "shortest_paths": ("ShortestPath",),
    "multiclass": ("Multiclass",),
}


def check(kinds: tuple[str, ...]) -> None:
    # without a compiler numpy promotes numbers of float32 otherwise, and refuses to
    # write to arrays without entries
    for program in mismatches(3, [*kinds], draws=600, dtypes=("float64",)):
        assert not program or "read-only" in program, program


LAWS = {files: functools.partial(check, kinds) for files, kinds in MET.items()}


if __name__ == "__main__":
    report(FAULTS, LAWS, sys.argv[1:])
