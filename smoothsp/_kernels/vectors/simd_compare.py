"""Comparison of two vectors, reduced to one boolean."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic


@intrinsic
def any_not_equal(typing, a, b):
    """Return whether any lane of a differs from that of b; NaN differs from all."""

    def codegen(context, builder, signature, args):
        is_unequal = builder.fcmp_unordered("!=", *args)
        bits = builder.bitcast(is_unequal, ir.IntType(is_unequal.type.count))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return types.boolean(a, a), codegen


if config.DISABLE_JIT:

    def any_not_equal(a, b):
        """Return whether any lane of a differs from that of b; NaN differs from all."""
        return bool(np.any(a != b))
