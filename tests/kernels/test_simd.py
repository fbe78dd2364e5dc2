"""Vectors in registers do what their names say, and stay inside their arrays."""

import platform
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from smoothsp._kernels.vectors import flush_to_zero
from smoothsp._kernels.vectors.kahan import add_compensated
from smoothsp._kernels.vectors.simd import (
    aligned_span,
    get_number,
    load,
    put_number,
    span,
    splat,
    splat_at,
    store,
)
from smoothsp._kernels.vectors.simd_exp import exp, exponent, log, mantissa
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    reduce_max,
    reduce_sum,
    store_masked,
    transpose_block,
)
from tests.sweeps import thinned

dtypes = pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))


@njit
def each(x, L):
    """Four columns: exp of x, and of -x exponent, mantissa and -x itself."""
    out = np.empty((4, len(x)), x.dtype)
    flat = span(out)
    for e in range(0, len(x), L):
        v = load(x, e)
        minus = splat(x.dtype.type(0)) - v
        store(flat, e, exp(v))
        store(flat, len(x) + e, exponent(minus))
        store(flat, 2 * len(x) + e, mantissa(minus))
        store(flat, 3 * len(x) + e, minus)
    return out


@dtypes
def test_exp_and_exponents_are_those_of_numpy(dtype):
    least = {np.float32: -87, np.float64: -708}[dtype]
    x = np.linspace(least, -1e-9, 4096).astype(dtype)
    found, exponents, mantissas, minus = each(x, 64 // x.itemsize)
    truth = np.exp(x.astype(np.longdouble))
    assert np.abs(found / truth - 1).max() < np.finfo(dtype).eps
    assert np.array_equal(mantissas * 2**exponents, minus)
    assert (mantissas >= 1).all()
    assert (mantissas < 2).all()


@dtypes
def test_exp_of_the_ends_of_its_range(dtype):
    x = np.array([0.0, -0.0, -np.inf, np.nan, -1e30, -750, -120, 2.0**-30] * 2, dtype)
    found = each(x, 64 // x.itemsize)[0][:6]
    np.testing.assert_array_equal(found, np.array([1, 1, 0, np.nan, 0, 0]))


@njit
def logarithms(x):
    out = np.empty_like(x)
    for e in range(0, len(x), 8):
        store(out, e, log(load(x, e)))
    return out


def test_logarithms_are_those_of_numpy():
    rng = np.random.default_rng(0)
    x = np.concatenate([
        10 ** rng.uniform(-307, 308, 4000),
        1 + rng.uniform(-1e-3, 1e-3, 4000),
        rng.uniform(0.5, 2, 4000),
        1 + np.arange(-4, 4) * 2.0**-53,
        [np.finfo(float).tiny, np.finfo(float).max, 1, 2, 4, 0.5, 2**-0.5, 2**0.5],
    ])  # fmt: skip
    truth = np.log(x.astype(np.longdouble))
    ulp = np.spacing(np.abs(truth).astype(float))
    assert (np.abs(logarithms(x) - truth) < 3 * ulp).all()
    assert (logarithms(np.ones(8)) == 0).all()


@njit
def copy(source, at, count, fill, out, to, wanted):
    some = load_masked(span(source), at, count, splat(fill))
    store_masked(span(out), to, wanted, some)
    return reduce_sum(some), reduce_max(some)


@dtypes
@pytest.mark.parametrize("stored", [np.float32, np.float64])
@pytest.mark.parametrize("count", [-3, 0, 1, 5, 8, 16, 40])
def test_parts_of_vectors(count, stored, dtype):
    L = 64 // np.dtype(dtype).itemsize
    source = np.arange(100, 160).astype(stored)
    out = np.full(40, 7.0, stored)
    total, largest = copy(source, 20, count, dtype(-1), out, 3, count)
    n = min(max(count, 0), L)
    assert np.array_equal(out[3 : 3 + n], np.arange(120, 120 + n))
    assert (np.delete(out, np.arange(3, 3 + n)) == 7).all()
    lanes = [*range(120, 120 + n), *[-1] * (L - n)]
    assert total == sum(lanes)
    assert largest == max(lanes)


@njit
def turned(x):
    transpose_block(span(x), 3)


@dtypes
def test_a_square_is_turned(dtype):
    L = 64 // np.dtype(dtype).itemsize
    x = np.arange(L * L + 6).astype(dtype)
    expected = x.copy()
    expected[3:-3] = x[3:-3].reshape(L, L).T.ravel()
    turned(x)
    assert np.array_equal(x, expected)


@njit
def ask(x, what, at):
    if what == 0:
        store(span(x), at, load(span(x), at))
    elif what == 1:
        store(span(x), 0, splat_at(span(x), at))
    elif what == 2:
        put_number(span(x), 0, get_number(span(x), at))
    elif what == 3:
        store_masked(span(x), at, 2, splat(x[0]))
    elif what == 4:
        transpose_block(span(x), at)
    else:
        store(aligned_span(x), at, load(x, 0))


@dtypes
@pytest.mark.parametrize("what", range(6))
def test_what_lies_outside_an_array_raises(what, dtype):
    L = 64 // np.dtype(dtype).itemsize
    x = np.zeros(L * L, dtype)
    ask(x, what, 0)
    last = {0: L * L - L, 1: L * L - 1, 2: L * L - 1, 3: L * L - 2, 4: 0, 5: 0}[what]
    ask(x, what, last)
    for outside in (-1, L * L + 1 if what == 5 else last + 1):
        with pytest.raises(IndexError, match="out of bounds"):
            ask(x, what, outside)


@njit
def added(x, L):
    total = lost = splat(x.dtype.type(0))
    for e in range(0, len(x), L):
        total, lost = add_compensated(total, lost, load(x, e))
    return reduce_sum(total), reduce_sum(lost)


def test_long_sums_keep_what_rounding_takes():
    x = np.full(16 * 100_000, 0.1, np.float32)
    total, lost = added(x, 16)
    assert abs(np.float64(total) - lost - x.astype(np.float64).sum()) < 1e-2


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="both are compiled for this processor"
)
@pytest.mark.parametrize("has_word", [True, False])
def test_only_x86_processors_get_instructions_of_x86(has_word, monkeypatch):
    monkeypatch.setattr(flush_to_zero, "_HAS_MXCSR", has_word)

    @njit
    def ask():
        before = flush_to_zero.set_flush_to_zero()
        flush_to_zero.restore_fp_mode(before)

    ask.compile(())
    (code,) = ask.inspect_llvm().values()
    assert ("llvm.x86.sse.ldmxcsr" in code) == has_word
    sources = Path(flush_to_zero.__file__).parents[1].rglob("*.py")
    assert [x.name for x in sources if "llvm.x86" in x.read_text()] == [
        "flush_to_zero.py"
    ]
