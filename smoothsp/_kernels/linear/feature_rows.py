"""Sparse feature rows of positions, from feature templates over string codes.

A template is a chain of pieces. Piece j reads the code c_j at offset o_j: a code, the
code of positions outside the sentence, or -1, with which the template has no feature.
With r the running value of a template,

    dictionary   r <- index of the pair (r, c_j) in the vocabulary
    hashing      r <- mix(r xor h(c_j))

There are P positions; a row of the result lists the features of a position, ascending.
"""

from numba import uint64

from smoothsp._kernels.compilation.kernel import kernel

# Hash of a piece outside its sentence: the fractional bits of pi.
OUTSIDE_HASH = uint64(0x243F6A8885A308D3)


@kernel
def shift_codes(codes, offsets, shift, outside, shifted):
    """Fill shifted[P] with the codes ``shift`` positions on, or ``outside``."""
    for i in range(len(offsets) - 1):
        first, last = offsets[i], offsets[i + 1]
        for p in range(first, last):
            q = p + shift
            # sentences are concatenated: codes of neighbours must not leak in
            shifted[p] = codes[q] if first <= q < last else outside


@kernel
def join_codes(codes, size, running):
    """Combine codes[P] in [0, size) with the running values; -1 in either gives -1."""
    for p in range(len(codes)):
        r = running[p]
        # a pair as one integer: unique, since codes are below size
        running[p] = r * size + codes[p] if r >= 0 and codes[p] >= 0 else -1


@kernel
def vocabulary_indices(vocabulary, running):
    """Replace running values by their indices in the sorted vocabulary, or by -1."""
    n = len(vocabulary)
    for p in range(len(running)):
        r = running[p]
        low, high = 0, n
        # binary search: the vocabulary is too large for a table over all pairs
        while low < high:
            middle = (low + high) // 2
            if vocabulary[middle] < r:
                low = middle + 1
            else:
                high = middle
        running[p] = low if low < n and vocabulary[low] == r else -1


@kernel
def hash_codes(codes, hashes, running, has_feature):
    """Mix the hash of each code into running[P]; clear has_feature[P] at codes of -1.

    The mixing function is the finaliser of splitmix64.
    """
    for p in range(len(codes)):
        c = codes[p]
        if c < 0:
            has_feature[p] = False
            continue
        z = (running[p] ^ hashes[c]) + uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        running[p] = z ^ (z >> uint64(31))


@kernel
def build_rows(columns, indptr, indices, values):
    """Fill CSR rows with a 1 for each non-negative entry of columns[P, templates].

    Equal columns of a row become one entry, their count. ``indices`` and ``values`` are
    long enough for all entries; indptr[P] is the number used.
    """
    num_entries = 0
    indptr[0] = 0
    for p in range(columns.shape[0]):
        first = num_entries
        for k in range(columns.shape[1]):
            column = columns[p, k]
            if column < 0:
                continue
            # insertion sort: dictionary columns arrive in order, hashed ones do not
            e = num_entries
            while e > first and indices[e - 1] > column:
                e -= 1
            if e > first and indices[e - 1] == column:
                values[e - 1] += 1
                continue
            for f in range(num_entries, e, -1):
                indices[f] = indices[f - 1]
                values[f] = values[f - 1]
            indices[e] = column
            values[e] = 1
            num_entries += 1
        indptr[p + 1] = num_entries
