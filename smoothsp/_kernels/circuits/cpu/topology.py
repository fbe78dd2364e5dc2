"""What makes a circuit: products as runs, and what each item needs."""

from smoothsp._kernels.compilation import kernel


@kernel
def compress(left, right, counts, runs):
    """Fill counts[H] and runs[., 5] with the products of left[H, E] and right[H, E].

    A run goes on while both factors advance by the same steps; -1 is no product.
    Returns how many runs there are: ``runs`` may be too short, and is filled as far as
    it goes.
    """
    H, E = left.shape
    found = 0
    for h in range(H):
        before = found
        count = a = b = step_a = step_b = last_a = last_b = 0
        for e in range(E + 1):
            p = left[h, e] if e < E else -1
            q = right[h, e] if e < E else -1
            if p < 0 and e < E:
                continue
            if count == 1 and e < E:
                step_a, step_b = p - a, q - b
            follows = count > 0 and p == last_a + step_a and q == last_b + step_b
            if e < E and follows:
                count += 1
            else:
                if count > 0:
                    if found < len(runs):
                        if count == 1:
                            step_a = step_b = 0
                        if step_a == 0:
                            # what stays is right: the sums know how to keep it
                            a, step_a, b, step_b = b, step_b, a, step_a
                        runs[found, 0] = count
                        runs[found, 1], runs[found, 2] = a, step_a
                        runs[found, 3], runs[found, 4] = b, step_b
                    found += 1
                count, a, b = 1, p, q
            last_a, last_b = p, q
        counts[h] = found - before
    return found


@kernel
def measure(leaves, heads, starts, runs, place, since, uses, levels):
    """Fill what each item needs: see ``Edges``; ``levels`` counts definitions above."""
    place[:] = -1
    since[:] = len(heads)
    uses[:] = -1
    levels[:] = 0
    uses[0] = 0
    uses[1 : 1 + leaves] = 1
    for h in range(len(heads)):
        item = heads[h]
        place[item] = h
        first, most, level = h, -1, 0
        for r in range(starts[h], starts[h + 1]):
            a, b = runs[r, 1], runs[r, 3]
            for _ in range(runs[r, 0]):
                first = min(first, since[a], since[b])
                level = max(level, levels[a], levels[b])
                if uses[a] >= 0 and uses[b] >= 0:
                    most = max(most, uses[a] + uses[b])
                a += runs[r, 2]
                b += runs[r, 4]
        since[item], uses[item], levels[item] = first, most, level + 1
