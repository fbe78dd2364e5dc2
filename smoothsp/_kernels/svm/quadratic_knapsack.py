"""Projection onto a box and one linear equality (continuous quadratic knapsack).

The minimiser of ``1/2 sum d_i^2 (b_i - v_i)^2`` over ``l <= b <= u`` with
``sum a_i b_i = z`` is

    b_i = clip(v_i + t a_i / d_i^2, l_i, u_i),

and ``f(t) = sum a_i b_i - z`` is nondecreasing, and linear between 2n breakpoints.
Median search: f is evaluated at the median breakpoint inside an open bracket of the
root. This discards half of the breakpoints and all copies of the median. An entry
without breakpoints inside the bracket is linear there and is folded into ``constant +
start + slope t``, so all rounds together visit O(n) entries. For large rows the first
bracket comes from a sample of the entries; it contains a few per cent of the
breakpoints.

Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
Accelerated Gradient Methods", section 5.5.1 and algorithm 8, without the sample.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays

# Smallest number of entries of a row that is sampled.
LARGE = 4096
# Half-width of the sampled bracket, in standard deviations of the sampled sum.
BRACKET_DEVIATIONS = 3.0
# Relative rounding error of a term; that of a sum of n terms is sqrt(n) times as large.
ROUNDING = 4 * np.finfo(np.float64).eps
# Relative residual above which no float64 t is taken to solve the equation.
HIDDEN_RESIDUAL = 1e-10


@kernel
def project_box_equality(
    first, last, v, lower, upper, weights, scale, strides, total, out
):
    """Fill out[B, n] with the minimiser for each row of v[B, n].

    lower, upper, weights (a) and scale (d) are flat: entry i of row r of the k-th of
    them is at ``r strides[k, 0] + i strides[k, 1]``, so that they may be broadcast.
    """
    n = v.shape[1]
    scratch = arrays.empty((6, n))
    for r in range(first, last):
        problem = (v[r], lower, upper, weights, scale, strides, r)
        t, _ = root_and_num_visits(problem, n, total[r], scratch)
        # Newton steps remove the rounding error of the running sums
        for _ in range(3):
            residual, slope, size = total[r], 0.0, 0.0
            for i in range(n):
                x, low, high, a, step = _load_entry(problem, i)
                b = x + t * step if step != 0 else x
                slope += a * step if (low < b) & (b < high) else 0.0
                b = min(max(b, low), high)
                out[r, i] = b
                residual -= a * b
                size += abs(a * b)
            if abs(residual) <= ROUNDING * np.sqrt(n) * size or not slope > 0:
                break
            t += residual / slope
        if (
            abs(residual)
            > (HIDDEN_RESIDUAL if slope > 0 else ROUNDING * np.sqrt(n)) * size
        ):
            _distribute_residual(problem, n, t, residual, out[r])


@subroutine
def _distribute_residual(problem, n, t, residual, out):
    """Distribute the residual over entries that rounding leaves undetermined.

    If v exceeds the box by more than its digits, no float64 t separates such entries.
    """
    for i in range(n):
        x, low, high, a, step = _load_entry(problem, i)
        error = ROUNDING * (abs(x) + abs(t * step))
        b = x + t * step
        if step == 0 or b < low - error or b > high + error:
            continue
        change = min(max(out[i] + residual / a, low), high) - out[i]
        out[i] += change
        residual -= a * change


@subroutine(forceinline=True)
def _load_entry(problem, i):
    """Return v_i, l_i, u_i, a_i and the slope ``a_i / d_i^2``, 0 if b_i is fixed."""
    v, lower, upper, weights, scale, strides, r = problem
    x = v[i]
    low = lower[r * strides[0, 0] + i * strides[0, 1]]
    high = upper[r * strides[1, 0] + i * strides[1, 1]]
    a = weights[r * strides[2, 0] + i * strides[2, 1]]
    d = scale[r * strides[3, 0] + i * strides[3, 1]]
    step = a / (d * d)
    if not (low < high and a * step > 0 and x > -np.inf):
        step = 0.0
    return x, low, high, a, step


@subroutine(forceinline=True)
def _load_clipped_line(problem, i):
    """Return start, slope, bottom, top of ``a_i b_i = clip(start + slope t, ...)``."""
    x, low, high, a, step = _load_entry(problem, i)
    if step == 0:
        fixed = a * min(max(x, low), high) if a != 0 else 0.0
        return fixed, 0.0, fixed, fixed
    return a * x, a * step, min(a * low, a * high), max(a * low, a * high)


@subroutine
def root_and_num_visits(problem, n, total, scratch):
    """Return the root t of f, and the number of entries visited in all rounds."""
    count = arrays.zeros(1, np.int64)
    low, high = -np.inf, np.inf
    if n >= LARGE:
        left, right = _sampled_brackets(problem, n, total, scratch, count)
        split = _split_at_brackets(problem, n, 1, left, right, scratch, count)
        below, above, constant, slope, start, size = split
        if below <= total <= above:
            constant -= total
            t = _root_by_median_search(
                scratch, size, left, right, constant, start, slope, count
            )
            return t, count[0]
        # the root is outside the brackets that the sample gave
        if below > total:
            high = left
        else:
            low = right
    _, _, constant, slope, start, size = _split_at_brackets(
        problem, n, 1, low, high, scratch, count
    )
    constant -= total
    t = _root_by_median_search(scratch, size, low, high, constant, start, slope, count)
    return t, count[0]


@subroutine
def _split_at_brackets(problem, n, stride, low, high, scratch, count):
    """Return the sums of ``a_i b_i`` at low and at high, and split the entries.

    Returns ``below, above, constant, slope, start, size``: entries without breakpoints
    in the bracket add up to ``constant + start + slope t``; the remaining ``size``
    entries are stored in ``scratch[:4]`` as start, slope, bottom and top. Visits every
    ``stride``-th entry.
    """
    constant = slope = start = 0.0
    below = above = 0.0
    size = 0
    for i in range(0, n, stride):
        s, m, bottom, top = _load_clipped_line(problem, i)
        if m == 0:
            constant += bottom
            below += bottom
            above += bottom
            continue
        left, right = s + m * low, s + m * high
        a, b = min(max(left, bottom), top), min(max(right, bottom), top)
        below += a
        above += b
        # without branches, which would be mispredicted
        straight = (left >= bottom) & (right <= top)
        flat = (a == b) & (not straight)
        constant += a if flat else 0.0
        start += s if straight else 0.0
        slope += m if straight else 0.0
        scratch[0, size], scratch[1, size] = s, m
        scratch[2, size], scratch[3, size] = bottom, top
        size += not (straight | flat)
    count[0] += n // stride
    return below, above, constant, slope, start, size


@subroutine
def _sampled_brackets(problem, n, total, scratch, count):
    """Return a bracket that usually contains the root, from a sample of the entries.

    The sample has about n^(2/3) entries at equal distances. Its root is computed for
    the scaled total, and for that total plus and minus ``BRACKET_DEVIATIONS`` standard
    deviations of the sampled sum.
    """
    stride = n // int(n ** (2 / 3))
    sample_size = -(-n // stride)
    sample_total = total * (sample_size / n)
    t = spread = 0.0
    left, right = np.inf, -np.inf
    for trial in range(3):
        target = (
            sample_total + (trial > 0) * (2 * trial - 3) * BRACKET_DEVIATIONS * spread
        )
        _, _, constant, slope, start, size = _split_at_brackets(
            problem, n, stride, -np.inf, np.inf, scratch, count
        )
        constant -= target
        t = _root_by_median_search(
            scratch, size, -np.inf, np.inf, constant, start, slope, count
        )
        left, right = min(left, t), max(right, t)
        if trial == 0:
            squares = mean = 0.0
            for i in range(0, n, stride):
                s, m, bottom, top = _load_clipped_line(problem, i)
                h = min(max(s + m * t, bottom), top)
                mean += h / sample_size
                squares += h * h / sample_size
            spread = np.sqrt(sample_size * max(squares - mean * mean, 0.0))
            count[0] += sample_size
    return left, right


@subroutine
def _root_by_median_search(scratch, size, low, high, constant, start, slope, count):
    """Return the root of ``constant + start + slope t`` plus the entries in scratch."""
    starts, slopes, bottoms, tops = scratch[0], scratch[1], scratch[2], scratch[3]
    breakpoints = scratch[4:].reshape(-1)
    while True:
        num_left = num_breakpoints = 0
        for i in range(size):
            s, m, bottom, top = starts[i], slopes[i], bottoms[i], tops[i]
            left, right = (bottom - s) / m, (top - s) / m
            if left >= high:
                constant += bottom
                continue
            if right <= low:
                constant += top
                continue
            if left <= low and right >= high:
                start += s
                slope += m
                continue
            if low < left:
                breakpoints[num_breakpoints] = left
                num_breakpoints += 1
            if right < high:
                breakpoints[num_breakpoints] = right
                num_breakpoints += 1
            starts[num_left], slopes[num_left] = s, m
            bottoms[num_left], tops[num_left] = bottom, top
            num_left += 1
        count[0] += size
        size = num_left
        if num_breakpoints == 0:
            break
        t = quickselect(breakpoints, num_breakpoints, num_breakpoints // 2)
        f = constant + start + slope * t
        for i in range(size):
            f += min(max(starts[i] + slopes[i] * t, bottoms[i]), tops[i])
        count[0] += size
        if f == 0:
            return t
        if f > 0:
            high = t
        else:
            low = t
    if slope > 0:
        return min(max(-(constant + start) / slope, low), high)
    # f is constant in the bracket: any point is a root if it is 0, else the root is at
    # the end where f changes sign
    residual = constant + start
    if low > -np.inf and high < np.inf and residual == 0:
        return low + (high - low) / 2
    if low > -np.inf and (residual >= 0 or not high < np.inf):
        return low
    return high if high < np.inf else 0.0


@subroutine
def quickselect(x, size, rank):
    """Return the entry of rank ``rank`` of x[:size] by quickselect; reorders x.

    The pivot is the median of three. Scans stop at entries equal to the pivot, so that
    many equal entries are split evenly.
    """
    left, right = 0, size - 1
    while left < right:
        middle = (left + right) // 2
        a, b, c = x[left], x[middle], x[right]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = left, right
        while i <= j:
            while x[i] < pivot:
                i += 1
            while x[j] > pivot:
                j -= 1
            if i <= j:
                x[i], x[j] = x[j], x[i]
                i += 1
                j -= 1
        if rank <= j:
            right = j
        elif rank >= i:
            left = i
        else:
            break
    return x[rank]
