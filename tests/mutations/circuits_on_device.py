"""Deliberate faults in the Triton kernels of circuits, and a check that sees them.

Run as ``python -m tests.mutations.circuits_on_device FOLDER 1`` with
TRITON_INTERPRET=1; see ``tests/mutations/runner.py``.
"""

import sys

import torch
from torch.testing import assert_close

from smoothsp.oracles import SpanTree
from smoothsp.oracles._circuits import cpu, cuda
from tests.instances.circuits import projective, semi_markov, small
from tests.mutations.runner import report

KERNELS = "_kernels/circuits/cuda/"
ENGINE = "oracles/_circuits/"
# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": (KERNELS + "inside_outside", "", ""),
    "sums that are not scaled when a larger product comes": (
        KERNELS + "inside_outside",
        "b_total *= pow2(b_top - b_new, dtype)",
        "b_total *= 1",
    ),
    "shares of the other factor's exponent": (
        KERNELS + "inside_outside",
        "b_k -= tl.load(e + a, mask=is_product, other=0)",
        "b_k -= tl.load(e + b, mask=is_product, other=0)",
    ),
    "shares without the other factor": (
        KERNELS + "inside_outside",
        "b_other = tl.load(m + b, mask=is_product, other=0.0)",
        "b_other = tl.load(m + a, mask=is_product, other=0.0)",
    ),
    "leaves that get no marginal": (
        KERNELS + "inside_outside",
        "range(max_depth - top, max_depth + 1)",
        "range(max_depth - top, max_depth)",
    ),
    "levels of the shortest row": (
        KERNELS + "inside_outside",
        "for level in range(0, tl.max(tl.load(depths + b_root), 0)):",
        "for level in range(0, tl.min(tl.load(depths + b_root), 0)):",
    ),
    "exponents of the last leaves alone": (
        KERNELS + "inside_outside",
        "b_max_exponent = tl.maximum(b_max_exponent, tl.max(b_size, 0))",
        "b_max_exponent = tl.max(b_size, 0)",
    ),
    "logarithms of two to three digits": (
        KERNELS + "scaled_floats",
        "r = (x - k * LN2_HIGH) - k * LN2_LOW",
        "r = x - k * LN2_HIGH",
    ),
    "mantissas of half the size": (
        KERNELS + "scaled_floats",
        "bits = (bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000",
        "bits = (bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000",
    ),
    "runs of which the first has all rows": (
        KERNELS + "tiles",
        "b_first, b_count, tl.max(b_count, 0)",
        "b_first, b_count, tl.min(b_count, 0)",
    ),
    "the last of tied products": (
        KERNELS + "max_product",
        "better = b_new > b_top",
        "better = b_new >= b_top",
    ),
    "outputs read from the right": (
        KERNELS + "max_product",
        "tl.store(stack + b_top * LANES, b_a, mask=inner)",
        "tl.store(stack + b_top * LANES, b_b, mask=inner)",
    ),
    "uses of the left factors alone": (
        ENGINE + "schedule",
        "np.append(left, right), np.append(right, left)",
        "np.append(left, left), np.append(right, right)",
    ),
    "runs that do not end": (
        ENGINE + "schedule",
        "~goes_on & (since % 2 == 0)",
        "~goes_on & (since == 0)",
    ),
    "far rows forgotten": (
        ENGINE + "cuda",
        "if len(bad_rows):",
        "if len(bad_rows) > len(value):",
    ),
}


def check_laws() -> None:
    """Sums are those of the CPU; the best is, too, to the bit."""
    torch.use_deterministic_algorithms(True)  # so that fresh memory holds NaN
    wide = torch.float64
    leaves, asked = small(semi_markov, wide, spread=30.0)
    large = leaves._replace(per_row=(1e12 * leaves.per_row[0], *leaves.per_row[1:]))
    words, trees = small(projective, wide)
    tied = words.map(torch.zeros_like)
    # items of nine products, where a block takes eight: the ninth is the largest
    many, spans = small(lambda draw: SpanTree(draw(2, 10, 10)), wide)
    many.per_row[0].view(2, 10, 10)[[0, 1], [0, 1], [8, 9]] += 100
    beyond = torch.arange(4) > torch.tensor([2, 0, 3, 1])[:, None]
    padding = beyond[:, :, None] | beyond[:, None, :]
    dirty = words.map(lambda x: x.masked_fill(padding, torch.nan))
    batches = (leaves, asked), (large, asked), (dirty, trees), (many, spans)
    for given, rows in batches:
        wanted = [True] * len((*given.per_row, *given.shared))
        value, _, marginals = cuda.log_partition_and_marginals(
            given, rows, wanted, wide
        )
        clean = words if given is dirty else given
        expected, _, split = cpu.log_partition_and_marginals(clean, rows, wanted, wide)
        assert_close(value, expected, rtol=1e-12, atol=1e-12)
        assert_close(marginals, split, rtol=1e-9, atol=1e-9)
    ties = many.map(torch.zeros_like)
    for given, rows in ((tied, trees), (dirty, trees), (ties, spans)):
        found = cuda.best(given, rows, None, wide)
        expected = cpu.best(given, rows, None, wide)
        assert_close(found[0], expected[0], rtol=0, atol=0)
        assert_close(found[2:], expected[2:], rtol=0, atol=0)


if __name__ == "__main__":
    report(FAULTS, {"": check_laws}, sys.argv[1:])
