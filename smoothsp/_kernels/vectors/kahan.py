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
def add_compensated(total, lost, term):
    """Total and loss after one more term; the sum so far is ``total - lost``."""
    term = term - lost
    new = total + term
    return new, (new - total) - term


@subroutine(forceinline=True)
def add_compensated_at(e, total, lost, term):
    """The same for the vectors at offset e."""
    new, loss = add_compensated(load(total, e), load(lost, e), term)
    store(total, e, new)
    store(lost, e, loss)
