"""Checksums of saved states: a damaged or edited state raises an error.

Resuming from changed numbers could converge elsewhere, loop forever or make kernels
read out of bounds. The bytes of a state are therefore verified before it is loaded.
"""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs.checks import short_repr

State = dict[str, NDArray[Any]]
_CHECKSUMS_KEY = "checksums"
_EXPECTED_STATE = "resume: expected the state of a certificate"


def add_checksums(state: State) -> State:
    """Return the state with a text of the checksums of its arrays."""
    checksums = {
        name: _array_checksum(array)
        for name, array in state.items()
        if name != _CHECKSUMS_KEY
    }
    entries = [f"{name}={checksum}" for name, checksum in checksums.items()]
    return {**state, _CHECKSUMS_KEY: np.array(" ".join(entries))}


@contextmanager
def open_state(saved: object) -> Iterator[State]:
    """Context manager that yields the verified arrays of a saved state.

    Errors in its body become a ValueError: the state is damaged or of other data.

    Raises
    ------
    TypeError
        If ``saved`` is no mapping.
    ValueError
        If an array is missing, was added, or differs from the saved one in dtype, shape
        or bytes. Also for a state of another problem that cannot be loaded.
    """
    if not isinstance(saved, Mapping):
        raise TypeError(
            "resume: expected the state of a certificate, a mapping from names to "
            f"arrays, got {type(saved).__name__}"
        )
    try:
        yield _verify_checksums(saved)
    # lazily read npz files can raise any error, and keys may be of any type
    except Exception as error:
        if str(error).startswith(("resume:", "state:")):
            raise
        raise ValueError(
            f"{_EXPECTED_STATE}, got one that was damaged or edited"
            f" ({type(error).__name__}: {short_repr(str(error))})"
        ) from error


def _verify_checksums(saved: Mapping[Any, Any]) -> State:
    arrays = {name: np.asarray(saved[name]) for name in saved}
    checksums = arrays.pop(_CHECKSUMS_KEY, None)
    if checksums is None:
        raise ValueError(f"{_EXPECTED_STATE}, got one without {_CHECKSUMS_KEY}")
    expected_checksums = dict(
        entry.rpartition("=")[::2] for entry in str(checksums).split()
    )
    for name in sorted({*expected_checksums, *arrays}, key=str):
        if name not in arrays:
            raise ValueError(f"{_EXPECTED_STATE}, got one without {name}")
        if name not in expected_checksums:
            raise ValueError(
                f"{_EXPECTED_STATE}, got one with {short_repr(name)} added"
            )
        if _array_checksum(arrays[name]) != expected_checksums[name]:
            raise ValueError(
                f"{_EXPECTED_STATE}, got one whose {name} was damaged or edited"
            )
    return arrays


def _array_checksum(array: NDArray[Any]) -> str:
    if array.dtype.hasobject:
        return "objects"
    # dtype and shape count too: equal bytes could be other numbers
    header = f"{array.dtype.str}{array.shape}".encode()
    crc = zlib.crc32(header)
    if array.size:
        crc = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, crc)
    return f"{crc:08x}"
