"""Nothing is written beyond an array, however little there is to compute."""

import ctypes
import sys

import pytest
import torch

from tests.guarded_memory import PARTS, guarded
from tests.programs import run

# The C library looks at the ends of what is given back, and fills what it hands out.
# Where the first is no library of the system, the linker says so and goes on.
CHECKS = {
    "LD_PRELOAD": "libc_malloc_debug.so.0",
    "MALLOC_CHECK_": "3",
    "MALLOC_PERTURB_": "165",
    "NUMBA_BOUNDSCHECK": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_empty_and_single_inputs_stay_within_their_arrays(dtype):
    command = [sys.executable, "-m", "tests.guarded_memory", dtype]
    done = run(*command, *sorted(PARTS), env=CHECKS)
    assert done.stdout.split() == sorted(PARTS)


@pytest.mark.short
def test_chains_stay_within_their_arrays():
    PARTS["layer"](torch.float32)
    # a step that shares no factor with the sizes meets all of each
    PARTS["chains"](torch.float32, 11)


@pytest.mark.parametrize("offset", [-1, 16])
def test_a_write_beside_a_result_is_noticed(offset):
    with pytest.raises(AssertionError, match="beside"), guarded():
        result = torch.empty(4)
        ctypes.memset(result.data_ptr() + offset, 0, 1)
