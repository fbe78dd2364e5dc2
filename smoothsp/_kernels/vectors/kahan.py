"""Sums of very many terms, in the dtype of the terms.

A few terms are added up in registers; these partial sums are added to a running total
that keeps what rounding takes away (Kahan's summation): the error does not grow with
their number. Nothing here may be compiled with additions reordered.
"""

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import load, store

# Terms that are added up in registers.
BLOCK = 128


@subroutine(forceinline=True)
def add_compensated(total, compensation, term):
    """Total and loss after one more term; the sum so far is ``total - lost``."""
    term = term - compensation
    new_total = total + term
    return new_total, (new_total - total) - term


@subroutine(forceinline=True)
def add_compensated_at(offset, totals, compensations, term):
    """The same for the vectors at offset e."""
    new_total, new_compensation = add_compensated(
        load(totals, offset), load(compensations, offset), term
    )
    store(totals, offset, new_total)
    store(compensations, offset, new_compensation)
