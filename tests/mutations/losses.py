"""Deliberate faults in losses that are one node, and their laws.

Run as ``python -m tests.mutations.losses FOLDER 1``; see ``tests/mutations/runner.py``.
"""

import sys

import pytest

from tests.laws import test_circuits, test_searches
from tests.laws import test_one_node as laws
from tests.mutations.runner import report
from tests.truth.circuits.cases import KINDS, SUMMED

SCORES, FUSED = "_kernels/circuits/cpu/scores", "_kernels/chain/cpu/fused"
SMOOTHED = "_kernels/vectors/smoothed_hinge"
TREES, PAIRS = (
    "_kernels/combinatorial/chu_liu_edmonds",
    "_kernels/combinatorial/jonker_volgenant",
)
ROWS, NODE = "oracles/_inference/row_losses", "losses/one_node"

# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": (SCORES, "", ""),
    "one output less": (
        SMOOTHED,
        "project_onto_simplex(mu, min(count, K), z, u)",
        "project_onto_simplex(mu, min(count, K - 1), z, u)",
    ),
    "exact too often": (SMOOTHED, "is_exact = mu <= gap_sum", "is_exact = True"),
    "costs of the labels of y": (
        SCORES,
        "if is_wrong and row_labels[b, 0, i] != edges.values[1 + leaf]:",
        "if is_wrong and row_labels[b, 0, i] == edges.values[1 + leaf]:",
    ),
    "costs of what no row reads": (
        SCORES,
        "is_wrong = i >= 0 and is_read[row, leaf]",
        "is_wrong = i >= 0",
    ),
    "costs of used parts": (
        SCORES,
        "augmented[b, y[b, u]] = main[b, y[b, u]]",
        "augmented[b, y[b, u]] = main[b, y[b, u]] + scale",
    ),
    "total without weights": (SCORES, "total += row_weight * loss", "total += loss"),
    "derivative without weights": (
        SCORES,
        "row_weight *= carray(addresses[3], (B,), np.float64)[b]",
        "row_weight *= 1",
    ),
    "derivative without y": (
        SCORES,
        "_add_to_targets(-row_weight, y[b], b, B, table, like)",
        "pass",
    ),
    "labels of another row": (
        SCORES,
        "label = labels[b, k, i] if is_real[row, i] else -1",
        "label = labels[0, k, i] if is_real[row, i] else -1",
    ),
    "chain without its cost": (
        FUSED,
        "(chain.emissions[b, t, j] + cost) * inverse_mu",
        "chain.emissions[b, t, j] * inverse_mu",
    ),
    "chain whose ends keep their size": (
        FUSED,
        "start[i], end[i] = chain.start[i] * inverse_mu, chain.end[i] * inverse_mu",
        "start[i], end[i] = chain.start[i], chain.end[i]",
    ),
    "chain without the strength": (
        FUSED,
        "= mu * _weighted_sum(row_weights, log_p)",
        "= _weighted_sum(row_weights, log_p)",
    ),
    "arcs of the wrong head": (
        TREES,
        "min(max(head, 0), n) * (n + 1) + v + 1 if v < m else -1",
        "min(max(head, 0), n) * (n + 1) + v if v < m else -1",
    ),
    "pairs of the wrong column": (
        PAIRS,
        "used[r, i] = i * C + j",
        "used[r, i] = j * C + i",
    ),
    "marginals not weighed": (ROWS, "rows = weights", "rows = None"),
    "strength of the value alone": (
        NODE,
        "losses.value.mul_(mu)",
        "losses.value.mul_(1)",
    ),
}
CHECKED = (
    *("ragged_chain", "choice", "span_tree", "projective", "grammar", "subset"),
    *("matching", "spanning_tree"),
)


def check_kind(kind: str) -> None:
    """Compare with differentiable questions, and hinges with an enumeration."""
    if kind in (*KINDS, *SUMMED):
        test_circuits.test_the_hinge_is_the_enumerated_formula(kind, None)
    if kind == "span_tree":
        laws.test_what_no_row_reads_costs_nothing()
    if kind == "matching":
        test_searches.test_hinges_are_those_of_the_enumeration(kind, None)
    asked = dict(laws.LOSSES)
    if kind == "spanning_tree":
        # sums over trees need the compiler
        del asked["entropy"], asked["CRF"]
    for values in laws.VALUES:
        for reduction in ("none", "mean"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(laws, "LOSSES", asked)
                laws.test_values_and_gradients_are_those_of_questions(
                    kind, values, reduction, patch
                )


if __name__ == "__main__":
    checks = {kind: (lambda kind=kind: check_kind(kind)) for kind in CHECKED}
    report(FAULTS, checks, sys.argv[1:])
