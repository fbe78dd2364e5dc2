"""What a compiled loop takes for granted about compressed rows, found out."""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors.simd import get, span


@kernel
def check(first, last, indptr, indices, columns, found):
    """Fill ``found``: the first entry that is out of range, and whether all rise.

    The first is the entry, or -1, whose column is not below ``columns``; the second is
    1 if columns rise within each row.
    """
    place = span(indices)
    found[0], found[1] = -1, 1
    for i in range(first, last):
        before = -1
        for e in range(indptr[i], indptr[i + 1]):
            j = get(place, e)
            if j < 0 or j >= columns:
                found[0] = e
                return
            if j <= before:
                found[1] = 0
            before = j
