"""Deliberate faults in projections and accelerated methods, and their laws.

Run as ``python -m tests.mutations.accelerated FOLDER 1``; see
``tests/mutations/runner.py``.
"""

import sys

import numpy as np
import torch

from smoothsp.projections import project_box_equality
from tests.linear.accelerated import test_agm
from tests.linear.accelerated import test_estimate_functions as laws
from tests.mutations.runner import report
from tests.projections import test_boxes_and_balls as boxes

KERNEL = "_kernels/svm/quadratic_knapsack"
AGM = "linear/solvers/accelerated/"

# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": (KERNEL, "", ""),
    "flat entries at the wrong end": (
        KERNEL,
        "constant += a if flat else 0.0",
        "constant += bottom if flat else 0.0",
    ),
    "straight entries without a slope": (
        KERNEL,
        "slope += m if straight else 0.0",
        "slope += 0.0",
    ),
    "full entries forgotten": (KERNEL, "constant += top", "constant += bottom"),
    "scale not squared": (KERNEL, "step = a / (d * d)", "step = a / d"),
    "derivative without the multiplier": (
        "projections/box",
        "return (fixed_total + v + shifted).to(box.v.dtype)",
        ("return (fixed_total + v + shifted.detach()).to(box.v.dtype)"),
    ),
    "one entry too few at its bound": (
        "projections/entropic",
        "before = sorted_caps.cumsum(-1) - sorted_caps",
        "before = sorted_caps.cumsum(-1)",
    ),
    "support of the ball too large": (
        "projections/elastic_net",
        "is_in_support = is_in_support.cumprod(-1).bool() & (size > 0)",
        "is_in_support = size > 0",
    ),
    "steps of another quadratic": (
        AGM + "estimate_functions",
        "half = (self.inverse_weight + self.lam + self.l1 + self.mixture_l2) / 2",
        "half = (self.inverse_weight + self.lam + self.l1 + self.mixture_l2)",
    ),
    "model without its start": (
        AGM + "estimate_functions",
        "p = inverse * self.prox_centre.mirror - model.G",
        "p = -model.G",
    ),
    "average of the wrong share": (
        AGM + "estimate_functions",
        "self.model = self.model.interpolate(a, tangent)",
        "self.model = self.model.interpolate(a * a, tangent)",
    ),
    "tangent at x, infinite memory": (
        AGM + "estimate_functions",
        "u: Floats = (to_z * self.z.x + to_x * self.x)",
        "u: Floats = 0 * to_z + self.x * (t * (1 + ratio) - t2 * ratio)",
    ),
    "tangent at x, one memory": (
        AGM + "estimate_functions",
        "u = (x_weight * self.x + z_weight * self.z.x) / (t - t2 * a)",
        "u = self.x",
    ),
    "slopes of one class twice": (
        "linear/problems/roc_area",
        "_pairwise_hinge_sums(-b[::-1], -a[::-1], weights_of_a[::-1], mu)",
        "_pairwise_hinge_sums(-b[::-1], -a[::-1], 2 * weights_of_a[::-1], mu)",
    ),
    "expected costs without their examples": (
        "linear/problems/structure",
        "total += float(losses.detach().sum()), float(expected_costs.sum())",
        "total += float(losses.detach().sum()), float(expected_costs[:1].sum())",
    ),
    "no trial fails": (
        AGM + "estimate_functions",
        "return bool(value <= bound + ROUNDING_TOL * (abs(value) + magnitude))",
        "return True",
    ),
    "strong convexity twice": (
        AGM + "estimate_functions",
        "self.lam = self.l1 + self.l2",
        "self.lam = 2 * (self.l1 + self.l2)",
    ),
    "conjugate without its threshold": (
        AGM + "prox_terms",
        "excess = np.maximum(np.abs(v) - self.l1, 0.0)",
        "excess = np.abs(v)",
    ),
    "cap not in the conjugate": (
        AGM + "prox_terms",
        "if self.cap >= 1:",
        "if True:",
    ),
    "a bound with the smoothed tangent's sum": (
        AGM + "risks",
        "return self.penalty.conjugate(-x[:-1]) - float(x[-1])",
        "return self.penalty.conjugate(-x[:-1]) - 2 * float(x[-1])",
    ),
    "gap of the smoothed risk": (
        AGM + "agm",
        "self._update_best(x, self.f.exact_risk(x) + self.penalty.at(x).psi)",
        "self._update_best(x, self.f.value(x) + self.penalty.at(x).psi)",
    ),
    "weights of the dual not averaged": (
        AGM + "agm",
        "w = -model.G[:-1]",
        "w = self.f.weights(x[:-1]) * 0.5",
    ),
}


def check_boxes() -> None:
    rng = np.random.default_rng(0)
    # the search itself, before steps of Newton
    v, a = rng.standard_normal(5000), rng.choice([-1.0, 1.0], 5000)
    t, _ = boxes.looked_at(v, np.ones(1), a, 50.0)
    assert abs(a @ np.clip(v + t * a, 0, 1) - 50) < 1e-8

    for share in (0.0, 0.3, 0.7, 1.0) * 5:
        v, low, high, a, total, d = boxes.draw(rng, 7, share)
        box = boxes.tensors(v, low, high, a, total, d)
        expected = boxes.by_bisection(v, low, high, a, total, d)
        found = project_box_equality(*box)
        assert np.abs(found.numpy() - expected).max() < 1e-8
        traced = torch.func.vmap(project_box_equality)(*(x[None] for x in box))
        assert np.abs(traced[0].numpy() - expected).max() < 1e-8
    boxes.test_a_sample_that_misleads_costs_a_round_and_nothing_else()
    boxes.test_gradients_of_a_box_are_derivatives()


def check_capped() -> None:
    boxes.test_a_capped_softmax_against_the_root_of_its_sum()


def check_balls() -> None:
    boxes.test_an_elastic_net_ball_against_bisection(1.0)


def check_estimate_functions() -> None:
    for bends in laws.BENDS[::3]:
        for adaptive in (False, True):
            laws.test_infinite_memory_keeps_what_is_proved_of_it(*bends, adaptive)
            laws.test_one_memory_keeps_what_is_proved_of_it(*bends, adaptive)
    laws.test_entropy_certifies_what_is_proved_of_it(np.inf, 0.05, False)
    laws.test_steps_solve_the_equations_of_the_paper()
    laws.test_iterates_are_those_of_the_printed_algorithms()


def check_risks() -> None:
    for make, smoothing in ((test_agm.trees, "entropy"), (test_agm.SETS[1], "l2")):
        test_agm.test_smoothed_risks_lie_between_and_have_their_gradient(
            make, smoothing
        )
    test_agm.test_tangents_are_below_the_risk_and_touch_where_smoothing_ends()


def check_simple_terms() -> None:
    for simple in (
        laws.ElasticNet(0.4, 0.7),
        laws.CappedSimplex(5, 0.0, 0.3),
    ):
        laws.test_conjugates_and_minima_are_the_best_of_many_points(simple)


def check_certificates() -> None:
    for scheme in test_agm.SCHEMES:
        test_agm.test_every_certificate_holds_and_the_gap_closes(
            lambda: test_agm.binary(True, n=12, size=2), scheme, "infinite"
        )


LAWS = {
    "box": check_boxes,
    "entropic": check_capped,
    "elastic_net": check_balls,
    "estimate_functions": check_estimate_functions,
    "roc_area structure risks": check_risks,
    "simple_terms": check_simple_terms,
    "agm": check_certificates,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    report(FAULTS, LAWS, sys.argv[1:])
