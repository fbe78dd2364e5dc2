"""Two vectors compared, answered for all lanes at once."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic


@intrinsic
def any_not_equal(typing, a, b):
    """Whether any lane of a is not equal to that of b."""

    def code(context, builder, signature, args):
        lanes = builder.fcmp_unordered("!=", *args)
        bits = builder.bitcast(lanes, ir.IntType(lanes.type.count))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return types.boolean(a, a), code


if config.DISABLE_JIT:

    def any_not_equal(a, b):
        """Whether any lane of a is not equal to that of b."""
        return bool(np.any(a != b))
