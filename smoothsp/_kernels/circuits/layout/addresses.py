"""Tables of the addresses of circuits and rows, and their records in compiled code.

Passing the arrays of a circuit one by one costs a call more than a small batch takes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.circuits.layout.circuit_arrays import CircuitArrays, RowRoots
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.arrays import carray


def address_table(fields: CircuitArrays | RowRoots) -> NDArray[np.int64]:
    """Return a row for each field: (number, 0), or (address, length) of an array.

    The caller must keep the arrays alive.
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
    """Return the ``CircuitArrays`` whose addresses are in ``table``."""
    # the fields by position, since compiled code cannot loop over unlike types
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
    """Return the ``RowRoots`` whose addresses are in ``table``."""
    order = carray(table[0, 0], (table[0, 1],), np.int64)
    return RowRoots(order, carray(table[1, 0], (table[1, 1],), np.int64))


@subroutine(optimise=False)
def load_potential_table(table):
    """Return the table of potentials of ``cpu.lanes`` at (address, number of rows)."""
    address, rows = table
    return carray(address, (rows, 4), np.int64)


@subroutine(optimise=False)
def _int32_field(table, field):
    """Return one int32 array of a circuit."""
    return carray(table[field, 0], (table[field, 1],), np.int32)
