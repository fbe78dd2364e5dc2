"""Deliberate faults in solvers of the whole set and their problems, and their laws.

Run as ``python -m tests.mutations.batch_solvers FOLDER 1``; see
``tests/mutations/runner.py``.
"""

import sys

import numpy as np

from smoothsp.linear.problems import ROCAreaProblem
from tests.linear.estimators import test_l1_and_boosting as estimators
from tests.linear.problems import test_binary, test_set_losses
from tests.linear.solvers import test_degenerate_sets, test_pragam
from tests.linear.solvers.cutting_planes import (
    test_bmrm,
    test_lower_bounds,
    test_simplex_qp,
)
from tests.mutations.runner import report

TABLES, PLANES = "_kernels/linear/contingency", "linear/solvers/cutting_planes/"
CUTS = "_kernels/combinatorial/cutting_planes"
PROBLEMS = "linear/problems/"
PRAGAM = "linear/solvers/accelerated/pragam"
ESTIMATORS = "linear/estimators/"

# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": (TABLES, "", ""),
    "F1 of the other class": (
        TABLES,
        "value = (b + c) / (2.0 * P - b + c) + positive[b] + negative[c]",
        "value = (b + c) / (2.0 * N - c + b + 1) + positive[b] + negative[c]",
    ),
    "tables without mu": (
        TABLES,
        "z = loss / mu + negative[c] + positive[b] - top",
        "z = loss + negative[c] + positive[b] - top",
    ),
    "a flip too few": (
        TABLES,
        "next_values[v] = values[v] + ratio_of_size[v] * values[v - 1]\n    for j",
        "next_values[v] = values[v] + ratio_of_size[v - 1] * values[v - 1]\n    for j",
    ),
    "block without its exponent": (
        TABLES,
        "scale = _exp2(exponents[j - 1] - exponents[j])",
        "scale = 1.0",
    ),
    "ratio of neighbours without exponents": (
        TABLES,
        "esp_ratios[v] = values[v - 1] / values[v] * scale",
        "esp_ratios[v] = values[v - 1] / values[v]",
    ),
    "past a half from below": (
        TABLES,
        "while low < m and flip_probs[low] > 0.5:",
        "while low < m and flip_probs[low] > 2.0:",
    ),
    "counted by both sweeps": (
        TABLES,
        "out[low] -= weight * flip_probs[low]",
        "out[low] -= 0.0",
    ),
    "expected loss of a table": (
        TABLES,
        "losses += weight * loss",
        "losses += loss",
    ),
    "slope of one class": (
        PROBLEMS + "f1",
        "classes, weight_ratios, count_probabilities, strict=True",
        "classes, weight_ratios, count_probabilities[::-1], strict=True",
    ),
    "not centred": (
        PROBLEMS + "f1",
        "- len(gains) * math.log(2)",
        "- math.log(2)",
    ),
    "pairs near the margin left out": (
        PROBLEMS + "roc_area",
        'np.searchsorted(b, a, side="right")',
        'np.searchsorted(b, a + 0.5, side="right")',
    ),
    "squares forgotten": (
        PROBLEMS + "roc_area",
        "+ quadratic_term / (2 * mu)",
        "+ quadratic_term / mu",
    ),
    "weights of a class not as shares": (
        PROBLEMS + "roc_area",
        "c[members] / c[members].sum()",
        "c[members] / len(members)",
    ),
    "weights of the other class": (
        PROBLEMS + "roc_area",
        "_pairwise_hinge_sums(a, b, weights_of_b, mu)",
        "_pairwise_hinge_sums(a, b, np.full(len(b), 1 / len(b)), mu)",
    ),
    "losses without their weights": (
        "_kernels/svm/binary_hinge",
        "total, compensation, bounds[i] * violation",
        "total, compensation, violation",
    ),
    "slope of the other class": (
        "_kernels/svm/binary_hinge",
        "-signs[i] * bounds[i], columns",
        "-bounds[i], columns",
    ),
    "bias one kink too far": (
        PROBLEMS + "binary",
        "return float(interval[0] + (interval[1] - interval[0]) / 2)",
        "return float(interval[1] + (interval[1] - interval[0]))",
    ),
    "the border counts in full": (
        PROBLEMS + "binary",
        "alpha += fraction * headroom",
        "alpha += headroom",
    ),
    "smoothed by another width": (
        PROBLEMS + "binary",
        "alpha @ margin_deficits - alpha @ (alpha / inverse_width) / 2",
        "alpha @ margin_deficits - alpha @ (alpha / inverse_width)",
    ),
    "older slopes in the products": (
        CUTS,
        "products[free_slot, row] = products[row, free_slot] = product",
        "products[free_slot, row] = product",
    ),
    "the last row once more": (
        CUTS,
        "row_offsets[max(num_rows - 1, 0)], 0.0",
        "row_offsets[max(num_rows - 1, 0)], row_weights[max(num_rows - 1, 0)]",
    ),
    "lambda forgotten in the programme": (
        CUTS,
        "b[a], weights[a] = lam * cuts[a, 0], cuts[a, 1]",
        "b[a], weights[a] = cuts[a, 0], cuts[a, 1]",
    ),
    "half of a line search": (
        PLANES + "models",
        "max(ascent / squared_distance, 0.0)",
        "max(ascent / squared_distance / 2, 0.0)",
    ),
    "dropped without its offset": (
        CUTS,
        "next_slots[num_cuts], next_cuts[num_cuts, 0] = row, next_cuts[a, 0]",
        "next_slots[num_cuts] = row",
    ),
    "support never grows": (
        "_kernels/combinatorial/simplex_qp",
        "if in_support[j] == 0 and (best < 0 or gradient[j] > gradient[best]):",
        "if in_support[j] == 0 and best > t:",
    ),
    "offset without the point": (
        PLANES + "bmrm",
        "inner_product = float(bundle_state.w @ gradient)",
        "inner_product = 0.0",
    ),
    "bound too high": (
        PLANES + "bmrm",
        "bound = offset - squared_norm / (2 * lam)",
        "bound = offset - squared_norm / (3 * lam)",
    ),
    "mu too small": (
        PRAGAM,
        "return _Iterate(zero_w, zero_scores, alpha, 2 * L, L, 0, n)",
        "return _Iterate(zero_w, zero_scores, alpha, L / 4, L, 0, n)",
    ),
    "gradient step of the old point": (
        PRAGAM,
        "            beta, w, iterate.scores, tau, L, next_mu_tau\n",
        "            iterate.alpha, w, iterate.scores, tau, L, next_mu_tau\n",
    ),
    "step from nothing": (
        "_kernels/svm/excessive_gap",
        "stepped = beta + (1 - sign * score) / L",
        "stepped = (1 - sign * score) / L",
    ),
    "next mixture of the last scores": (
        "_kernels/svm/excessive_gap",
        "_mix_with_smoothed(\n                alpha[i], sign, mixed[i], next_mu",
        "_mix_with_smoothed(alpha[i], sign, scores[i], next_mu",
    ),
    "dual without its scale": (
        ESTIMATORS + "l1_svc",
        "return float(alpha.sum()) / max(max_ratio, 1.0)",
        "return float(alpha.sum())",
    ),
    "a free bias without balance": (
        ESTIMATORS + "l1_svc",
        "return np.where(class_masks[0], factors[0], factors[1]) * alpha",
        "return alpha",
    ),
    "cap of the next": (
        ESTIMATORS + "lp_boost",
        "remaining_mass = 1 - (np.cumsum(sorted_caps) - sorted_caps)",
        "remaining_mass = 1 - np.cumsum(sorted_caps)",
    ),
    "dual player answers with the wrong sign": (
        ESTIMATORS + "lp_boost",
        "-(alpha @ self.margins) / self.lam, self.max_weights, self.prior",
        "(alpha @ self.margins) / self.lam, self.max_weights, self.prior",
    ),
}


def check_tables() -> None:
    for seed in (1, 3, 4):
        test_set_losses.test_f1_against_all_labellings(seed)
    for seed in range(10):
        test_set_losses.test_roc_area_against_all_pairs(seed)
    for seed in range(3):
        test_set_losses.test_weights_of_the_roc_area_are_repetitions(seed)
    for mu in (1e-3, 10.0):
        test_set_losses.test_f1_against_the_recurrence_in_log_space(0.5, mu)
    test_set_losses.test_f1_against_the_recurrence_in_log_space(0.03, 1e-6)


def check_binary() -> None:
    for seed in range(12):
        test_binary.test_the_best_bias_is_the_middle_of_those_of_least_risk(seed)
        test_binary.test_the_slope_is_a_subgradient(seed, True)
    for seed in range(3):
        test_binary.test_sparse_samples_read_once_are_those_read_twice(seed)
    test_binary.test_the_smoothed_risk_lies_below_by_at_most_its_diameter(1, True, "l2")


def check_quadratic() -> None:
    for seed in range(12):
        test_simplex_qp.test_maximum_over_the_simplex(seed)


def check_planes() -> None:
    for inner in ("qp", "line-search"):
        test_lower_bounds.test_each_round_halves_nothing_but_one_over_t(
            np.eye(9), inner
        )
        test_bmrm.test_bounds_hold_at_every_certificate(inner)
    test_bmrm.test_the_step_of_the_line_search_is_that_of_both_formulas()
    test_bmrm.test_forgotten_cuts_do_not_change_the_optimum()


def check_pragam() -> None:
    test = test_pragam.test_the_gap_is_excessive_and_falls_as_the_theorem_says
    test(1e-2, 0, False)


def check_degenerate_sets() -> None:
    for name in ("zeros", "zeros, classes apart in size"):
        test_degenerate_sets.test_the_optimum_lies_between_the_bounds(name, True)
    test = test_degenerate_sets.test_features_too_large_prove_nothing
    test(ROCAreaProblem, 8)


def check_estimators() -> None:
    estimators.test_bounds_of_the_l1_svm_hold_on_the_way()
    estimators.test_multipliers_prove_a_bound_once_no_bias_can_gain()
    for seed in range(6):
        estimators.test_a_softmax_with_a_cap(seed)
    estimators.test_the_game_against_a_cone_programme(0, 0.2)


# The tests that see these faults, on few instances.
LAWS = {
    "contingency f1 roc_area": check_tables,
    "binary binary_hinge": check_binary,
    "simplex_quadratic": check_quadratic,
    "cuts models bmrm": check_planes,
    "pragam excessive_gap": check_pragam,
    "": check_degenerate_sets,
    "l1_svc lp_boost": check_estimators,
}


if __name__ == "__main__":
    report(FAULTS, LAWS, sys.argv[1:])
