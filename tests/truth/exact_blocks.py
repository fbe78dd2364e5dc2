"""The block of the Weston-Watkins dual in exact rationals; no kernel, no cleverness.

min 1/2 b'(I + 11')b - v'b    over 0 <= b <= c
"""

import itertools
from fractions import Fraction


def minimum_by_enumeration(v, c):
    """Try every set of entries at 0, inside and at their bounds; c one number each."""
    found = set()
    for where in itertools.product("0ic", repeat=len(v)):
        inside = [i for i, at in enumerate(where) if at == "i"]
        full = [i for i, at in enumerate(where) if at == "c"]
        mass = sum((c[i] for i in full), Fraction(0)) + sum(v[i] for i in inside)
        g = mass / (1 + len(inside))
        b = [
            Fraction(0) if at == "0" else c[i] if at == "c" else v[i] - g
            for i, at in enumerate(where)
        ]
        if is_minimum(b, v, c):
            found.add(tuple(b))
    (only,) = found
    return list(only)


def is_minimum(b, v, c):
    """The conditions (29) to (34) of the paper, exactly."""
    total = sum(b)
    for x, target, bound in zip(b, v, c, strict=True):
        pull = target - x - total
        if not 0 <= x <= bound:
            return False
        if (x > 0 and pull < 0) or (x < bound and pull > 0):
            return False
    return True


def events(v, C):
    """Subroutine 3: breakpoints from above, each ``dn`` or ``up``; at ties up first."""
    points = [(x, "dn") for x in v if x > 0] + [(x - C, "up") for x in v if x > C]
    return sorted(points, key=lambda point: (-point[0], point[1] == "dn"))


def minimum_by_events(v, C):
    """Algorithm 2 with its five conditions; (b, the event at which it stops).

    Subroutine 4 is printed with the index of the entry before: here it takes away the
    entry that becomes full.
    """
    ranked = sorted(v, reverse=True)
    if ranked[0] <= 0:
        return [Fraction(0)] * len(v), 0
    full = inside = 0
    mass = Fraction(0)
    for step, (_, kind) in enumerate(events(v, C), 1):
        if kind == "up":
            mass -= ranked[full]
            full, inside = full + 1, inside - 1
        else:
            mass += ranked[full + inside]
            inside += 1
        g = (C * full + mass) / (inside + 1)
        good = full == 0 or C + g <= ranked[full - 1]
        if inside > 0:
            good &= ranked[full] <= C + g and g <= ranked[full + inside - 1]
        if full + inside < len(v):
            good &= ranked[full + inside] <= g
        if good:
            return [max(Fraction(0), min(C, x - g)) for x in v], step
    raise AssertionError("Algorithm 2 went past its last event")
