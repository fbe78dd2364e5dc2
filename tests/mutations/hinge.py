"""Deliberate faults in the binary dual, and its laws.

Run as ``python -m tests.mutations.hinge FOLDER 1``; see ``tests/mutations/runner.py``.
"""

import sys

import numpy as np

from tests.linear.estimators import test_binary_rows as laws
from tests.mutations.runner import report

KERNEL, DUAL = "_kernels/svm/binary_hinge", "linear/descent/binary_dual"

# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": (KERNEL, "", ""),
    "part of a vector forgotten": (
        KERNEL,
        "while e < width:",
        "while e + V <= width:",
    ),
    "second vector forgotten": (
        KERNEL,
        "return reduce_sum(p + q)",
        "return reduce_sum(p)",
    ),
    "row of another sample": (
        KERNEL,
        "product = _dot_dense(i * width, width",
        "product = _dot_dense(k * width, width",
    ),
    "one of four sums forgotten": (
        "_kernels/svm/csr_rows",
        "return (a + b) + (c + d)",
        "return (a + b) + c",
    ),
    "step without the sign": (KERNEL, "change *= s", "change *= 1"),
    "reach of what moved": (KERNEL, "            skip_until[i] = -1\n", ""),
    "reach too long": (
        KERNEL,
        "np.sqrt(squared_norms[i])",
        "(np.sqrt(squared_norms[i]) / 9)",
    ),
    "reach in spite of a gap": (
        KERNEL,
        "skip_until[i] = -1.0 if (gap[i] > 0) | (m == 0) else next_update",
        "skip_until[i] = next_update",
    ),
    "weights that stand still": (
        DUAL,
        "np.sqrt(np.dot(displacement, displacement))",
        "0.0 * np.sqrt(np.dot(displacement, displacement))",
    ),
    "no losses": (KERNEL, "loss[i] = c * above", "loss[i] = 0"),
    "losses that were not computed": (DUAL, "if checks_all:", "if True:"),
    "gaps that stay after rounding was undone": (
        DUAL,
        "        self._recheck_radius[:] = -1\n",
        "",
    ),
}


def check_laws() -> None:
    """Compare certificates, steps and weights with plain numpy."""
    for form in laws.FORMS:
        laws.test_what_a_certificate_leaves_out_has_no_gap(form, np.float64)
        laws.test_a_certificate_is_to_the_bit_one_that_looks_at_all(form)
        laws.test_weights_computed_anew_are_looked_at_by_all(form)
    for d in (1, 8, 19, 33):
        laws.test_dense_and_sparse_rows_take_the_same_steps(d)


if __name__ == "__main__":
    report(FAULTS, {"": check_laws}, sys.argv[1:])
