"""Flush-to-zero mode: subnormal numbers are replaced by 0 while a kernel runs.

Arithmetic with subnormal operands or results is about a hundred times slower. Kernels
bound the loss below the smallest normal number anyway.
"""

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

# Bits of MXCSR, the control word of SSE: FTZ (subnormal results are 0) and DAZ
# (subnormal operands are 0).
_FLUSH_BITS = (1 << 15) | (1 << 6)
_HAS_MXCSR = platform.machine().lower() in ("x86_64", "amd64")


def _emit_mxcsr_access(builder, operation, pointer):
    """Emit a store ("st") of MXCSR to a pointer, or a load ("ld") from it."""
    function_type = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
    name = f"llvm.x86.sse.{operation}mxcsr"
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    builder.call(function, [builder.bitcast(pointer, cgutils.voidptr_t)])


@intrinsic
def set_flush_to_zero(typing):
    """Treat subnormal numbers as 0; return the mode for ``restore_fp_mode``."""

    def codegen(context, builder, signature, args):
        # stmxcsr and ldmxcsr take a pointer to 32 bits
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
    """Restore the mode that ``set_flush_to_zero`` returned."""

    def codegen(context, builder, signature, args):
        if _HAS_MXCSR:
            pointer = cgutils.alloca_once_value(builder, args[0])
            _emit_mxcsr_access(builder, "ld", pointer)
        return context.get_dummy_value()

    return types.void(types.int32), codegen


if config.DISABLE_JIT:

    def set_flush_to_zero():
        """Do nothing: interpreted code runs in the default mode."""
        return 0

    def restore_fp_mode(saved_mode):
        """Do nothing."""
