"""States of runs, of which each array has a checksum: damaged ones are refused.

A run that goes on from changed numbers may end anywhere, never end, or read memory that
is not its own. So states are checked by their bytes, before anything reads them.
"""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs.checks import short_repr

State = dict[str, NDArray[Any]]
_SUMS = "checksums"
_EXPECTED = "resume: expected a state as the callback of a fit had it"


def add_checksums(state: State) -> State:
    """The state with the checksums of its arrays."""
    sums = {name: _sum(array) for name, array in state.items() if name != _SUMS}
    words = [f"{name}={found}" for name, found in sums.items()]
    return {**state, _SUMS: np.array(" ".join(words))}


@contextmanager
def open_state(given: object) -> Iterator[State]:
    """Arrays of a state as it was saved, around what goes on from them.

    Raises
    ------
    TypeError
        If it is no mapping.
    ValueError
        If an array is missing, was added, or differs from the saved one in dtype, shape
        or bytes. Also for a state of another problem that cannot be loaded.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            "resume: expected the state of a certificate, a mapping from names to "
            f"arrays, got {type(given).__name__}"
        )
    try:
        yield _unsealed(given)
    # files that are read lazily may be damaged, too, and names may be of any type
    except Exception as why:
        if str(why).startswith(("resume:", "state:")):
            raise
        raise ValueError(
            f"{_EXPECTED}, got one that was damaged or edited"
            f" ({type(why).__name__}: {short_repr(str(why))})"
        ) from why


def _unsealed(given: Mapping[Any, Any]) -> State:
    found = {name: np.asarray(given[name]) for name in given}
    sums = found.pop(_SUMS, None)
    if sums is None:
        raise ValueError(f"{_EXPECTED}, got one without {_SUMS}")
    saved = dict(word.rpartition("=")[::2] for word in str(sums).split())
    for name in sorted({*saved, *found}, key=str):
        if name not in found:
            raise ValueError(f"{_EXPECTED}, got one without {name}")
        if name not in saved:
            raise ValueError(f"{_EXPECTED}, got one with {short_repr(name)} besides")
        if _sum(found[name]) != saved[name]:
            raise ValueError(f"{_EXPECTED}, got one whose {name} was damaged or edited")
    return found


def _sum(array: NDArray[Any]) -> str:
    if array.dtype.hasobject:
        return "objects"
    about = f"{array.dtype.str}{array.shape}".encode()
    total = zlib.crc32(about)
    if array.size:
        total = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, total)
    return f"{total:08x}"
