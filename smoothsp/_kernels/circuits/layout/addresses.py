"""Circuits and rows as tables of numbers and addresses, and back in compiled code.

To take the arrays of a circuit one by one costs a call more than a small batch does.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.circuits.layout.circuit_arrays import CircuitArrays, RowRoots
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.arrays import carray


def address_table(fields: CircuitArrays | RowRoots) -> NDArray[np.int64]:
    """A row for each field: a number and 0, or the address of an array and its length.

    The caller keeps the arrays alive.
    """
    rows: list[tuple[Any, int]] = []
    for x in fields:
        if isinstance(x, np.ndarray):
            if not x.flags.c_contiguous:
                raise ValueError("addresses: expected contiguous arrays")
            rows.append((x.__array_interface__["data"][0], len(x)))
        else:
            rows.append((x, 0))
    return np.array(rows, np.int64)


@subroutine(optimise=False)
def load_circuit(table):
    """The ``Edges`` of which ``table`` has the addresses."""
    runs = carray(table[5, 0], (table[5, 1], 5), np.int32)
    return CircuitArrays(
        table[0, 0],
        table[1, 0],
        table[2, 0],
        _int32_field(table, 3),
        _int32_field(table, 4),
        runs,
        _int32_field(table, 6),
        _int32_field(table, 7),
        _int32_field(table, 8),
        _int32_field(table, 9),
        table[10, 0],
        _int32_field(table, 11),
        _int32_field(table, 12),
    )


@subroutine(optimise=False)
def load_row_roots(table):
    """The ``Rows`` of which ``table`` has the addresses."""
    order = carray(table[0, 0], (table[0, 1],), np.int64)
    return RowRoots(order, carray(table[1, 0], (table[1, 1],), np.int64))


@subroutine(optimise=False)
def load_potential_table(table):
    """The table of potentials, as ``lanes`` has it, at an address with so many rows."""
    address, rows = table
    return carray(address, (rows, 4), np.int64)


@subroutine(optimise=False)
def _int32_field(table, field):
    return carray(table[field, 0], (table[field, 1],), np.int32)
