"""Arrays that compiled code makes are those that numpy would make."""

import sys

import numpy as np
import pytest
from numba import njit

from smoothsp._kernels.vectors import arrays


@njit
def made(rows, columns, like):
    return (
        arrays.empty(rows),
        arrays.empty((rows, columns), like.dtype),
        arrays.zeros(columns),
        arrays.zeros((rows, columns, 2), like.dtype),
        arrays.zeros((columns, 1), np.int32),
        arrays.zeros(rows, np.bool_),
    )


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (0, 2), (1, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_new_arrays_are_those_of_numpy(rows, columns, dtype):
    expected = [
        np.empty(rows),
        np.empty((rows, columns), dtype),
        np.zeros(columns),
        np.zeros((rows, columns, 2), dtype),
        np.zeros((columns, 1), np.int32),
        np.zeros(rows, np.bool_),
    ]
    found = made(rows, columns, np.empty(0, dtype))
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.strides == other.strides or not other.size
        assert one.flags.c_contiguous and one.flags.writeable
    for one in found[2:]:
        assert not one.any()


def test_zeros_are_cleared_where_others_were():
    @njit
    def dirty_then_clean(size):
        for _ in range(8):
            arrays.empty(size)[:] = 1
        return arrays.zeros(size)

    assert not dirty_then_clean(1000).any()


def test_memory_is_given_back():
    resource = pytest.importorskip("resource")

    @njit
    def many(rounds):
        total = 0.0
        for _ in range(rounds):
            total += arrays.zeros((1000, 1000))[3, 3] + len(arrays.empty(5))
        return total

    assert many(1) == 5
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert many(100) == 500
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # a round has 8 MB; in kilobytes, in bytes on a Mac
    assert after - before < 400_000 * (1024 if sys.platform == "darwin" else 1)


@pytest.mark.parametrize("size", [2**62, 2**45])
def test_what_does_not_fit_is_refused(size):
    @njit
    def large(size):
        return arrays.empty((size, 2))

    with pytest.raises((ValueError, MemoryError)):
        large(size)


def test_memory_at_an_address_is_shared():
    @njit
    def fill(address, like):
        found = arrays.carray(address, (2, 3), like)
        for i in range(2):
            for j in range(3):
                found[i, j] = 10 * i + j
        flat = arrays.carray(address, (6,), np.float32)
        return flat.sum(), found.strides

    memory = np.zeros((2, 3), np.float32)
    total, strides = fill(memory.ctypes.data, memory)
    assert memory.tolist() == [[0, 1, 2], [10, 11, 12]]
    assert (total, strides) == (36, memory.strides)


def test_entries_are_copied_in_order():
    @njit
    def shifted(values):
        arrays.copy(values[2:], values[:3])
        return values

    assert shifted(np.arange(5.0)).tolist() == [2, 3, 4, 3, 4]
