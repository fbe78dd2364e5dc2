"""Features of positions, assembled from the codes of strings.

A template is a chain of pieces. Piece j looks o_j positions away and finds there a code
c_j, or the outside of the sentence, or nothing (-1), and then the template does not
fire. With r the running value of a template,

    dictionary   r <- place of the pair (r, c_j) among those known
    hashing      r <- mix(r xor h(c_j))

P positions; a row of the result lists the features of one position, ascending.
"""

from numba import uint64

from smoothsp._kernels.compilation.kernel import kernel

# Where the hash of a piece is looked up when it lies outside its sentence.
OUTSIDE_HASH = uint64(0x243F6A8885A308D3)


@kernel
def shift_codes(codes, offsets, shift, outside, shifted):
    """Fill found[P] with the codes ``away`` positions on; ``outside`` beyond ends."""
    for i in range(len(offsets) - 1):
        first, last = offsets[i], offsets[i + 1]
        for p in range(first, last):
            q = p + shift
            shifted[p] = codes[q] if first <= q < last else outside


@kernel
def join_codes(codes, size, running):
    """Join codes[P] in [0, size) to the running values; -1 stays, or becomes, -1."""
    for p in range(len(codes)):
        r = running[p]
        running[p] = r * size + codes[p] if r >= 0 and codes[p] >= 0 else -1


@kernel
def vocabulary_indices(vocabulary, running):
    """Replace running values by their places among the sorted ``known``, or by -1."""
    n = len(vocabulary)
    for p in range(len(running)):
        r = running[p]
        low, high = 0, n
        while low < high:
            middle = (low + high) // 2
            if vocabulary[middle] < r:
                low = middle + 1
            else:
                high = middle
        running[p] = low if low < n and vocabulary[low] == r else -1


@kernel
def hash_codes(codes, hashes, running, has_feature):
    """Mix the hash of each code into running[P]; clear fires[P] at codes of -1.

    The finaliser of splitmix64.
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
    """Sparse rows with a 1 for each number of at least 0 in columns[P, templates].

    Numbers that meet in a row are one entry, of how many they were. ``indices`` and
    ``values`` have room for all; indptr[P] tells how much of it is used.
    """
    num_entries = 0
    indptr[0] = 0
    for p in range(columns.shape[0]):
        first = num_entries
        for k in range(columns.shape[1]):
            column = columns[p, k]
            if column < 0:
                continue
            # numbers of a dictionary come in order, those of a hash do not
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
