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
_FLUSH_BITS = (1 << 15) | (1 << 6)
_HAS_MXCSR = platform.machine().lower() in ("x86_64", "amd64")


def _emit_mxcsr_access(builder, operation, pointer):
    function_type = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
    name = f"llvm.x86.sse.{operation}mxcsr"
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    builder.call(function, [builder.bitcast(pointer, cgutils.voidptr_t)])


@intrinsic
def set_flush_to_zero(typing):
    """Take subnormal numbers as 0 from now on; returns what ``restore`` takes."""

    def codegen(context, builder, signature, args):
        pointer = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(32), 0))
        if not _HAS_MXCSR:
            return builder.load(pointer)
        _emit_mxcsr_access(builder, "st", pointer)
        saved_mode = builder.load(pointer)
        builder.store(builder.or_(saved_mode, saved_mode.type(_FLUSH_BITS)), pointer)
        _emit_mxcsr_access(builder, "ld", pointer)
        return saved_mode

    return types.int32(), codegen


@intrinsic
def restore_fp_mode(typing, saved_mode):
    """Take subnormal numbers as before."""

    def codegen(context, builder, signature, args):
        if _HAS_MXCSR:
            pointer = cgutils.alloca_once_value(builder, args[0])
            _emit_mxcsr_access(builder, "ld", pointer)
        return context.get_dummy_value()

    return types.void(types.int32), codegen


if config.DISABLE_JIT:

    def set_flush_to_zero():
        """Take subnormal numbers as they are."""
        return 0

    def restore_fp_mode(saved_mode):
        """Take subnormal numbers as before."""
