"""Subnormal numbers as 0, for as long as a kernel runs.

A processor takes a hundred times as long for a sum or a product that is subnormal. What
kernels lose below the smallest normal number they bound anyway.
"""

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

# Bits of the control word of x86: results that are subnormal are 0, arguments too.
_FLUSH = (1 << 15) | (1 << 6)
_HAS_WORD = platform.machine().lower() in ("x86_64", "amd64")


def _access(builder, what, word):
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
    name = f"llvm.x86.sse.{what}mxcsr"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    builder.call(function, [builder.bitcast(word, cgutils.voidptr_t)])


@intrinsic
def set_flush_to_zero(typing):
    """Take subnormal numbers as 0 from now on; returns what ``restore`` takes."""

    def code(context, builder, signature, args):
        word = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
        if not _HAS_WORD:
            return builder.load(word)
        _access(builder, "st", word)
        before = builder.load(word)
        builder.store(builder.or_(before, before.type(_FLUSH)), word)
        _access(builder, "ld", word)
        return before

    return types.int32(), code


@intrinsic
def restore_fp_mode(typing, before):
    """Take subnormal numbers as before."""

    def code(context, builder, signature, args):
        if _HAS_WORD:
            word = cgutils.alloca_once_value(builder, args[0])
            _access(builder, "ld", word)
        return context.get_dummy_value()

    return types.void(types.int32), code


if config.DISABLE_JIT:

    def set_flush_to_zero():
        """Take subnormal numbers as they are."""
        return 0

    def restore_fp_mode(before):
        """Take subnormal numbers as before."""
