"""Kahan summation of many terms, in the dtype of the terms.

BLOCK terms are added in registers. These partial sums are added to a total with a
compensation term, so the error does not grow with their number. Must not be compiled
with fast-math options that reorder additions.

Source: Kahan, "Further Remarks on Reducing Truncation Errors".
"""

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import load, store

# Terms of a partial sum.
BLOCK = 128


@subroutine(forceinline=True)
def add_compensated(total, compensation, term):
    """Return total and compensation after one term; the sum is total - compensation."""
    term = term - compensation
    new_total = total + term
    # algebraically 0: the part of the term that rounding added to the total
    return new_total, (new_total - total) - term


@subroutine(forceinline=True)
def add_compensated_at(offset, totals, compensations, term):
    """Add a term to the vector of compensated sums at ``offset``, in place."""
    new_total, new_compensation = add_compensated(
        load(totals, offset), load(compensations, offset), term
    )
    store(totals, offset, new_total)
    store(compensations, offset, new_compensation)
