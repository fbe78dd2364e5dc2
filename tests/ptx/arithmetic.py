"""What the instructions of PTX compute: a function of numpy arrays for each."""

import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
TYPES = {
    f"{kind}{bits}": np.dtype(f"{letter}{bits // 8}")
    for kind, letter in {"s": "i", "u": "u", "b": "u"}.items()
    for bits in (8, 16, 32, 64)
}
TYPES |= {"f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype(bool)}
WIDER = {"i2": "i4", "u2": "u4", "i4": "i8", "u4": "u8"}
# Numbers that ``ex2.approx`` and its like may be off by, in units of the last place.
most_ulps = 2


class Unknown(NotImplementedError):
    """An instruction that has no model here."""


class Fault(AssertionError):
    """Something that a GPU would not do, or not twice in the same way."""


@dataclass(frozen=True)
class Rule:
    """Dtypes of the operands, the dtype of the result, and the function."""

    operands: tuple[np.dtype, ...]
    result: np.dtype
    compute: Callable[..., Array]


def rule(op: str) -> Rule:
    """Return what ``add.rn.f32`` and its like compute."""
    base, *modifiers = op.split(".")
    last = modifiers[-1] if modifiers else ""
    if base == "cvt":
        return _conversion(op, modifiers)
    if last not in TYPES:
        raise Unknown(op)
    kind = TYPES[last]
    key = ".".join([base, *modifiers[:-1]])
    floating = kind.kind == "f"
    if base == "setp" and len(modifiers) == 2:
        compare = (_FLOAT_COMPARISONS if floating else _COMPARISONS)[modifiers[0]]
        return Rule((kind, kind), TYPES["pred"], compare)
    if key == "selp":
        return Rule((kind, kind, TYPES["pred"]), kind, _select)
    if base in {"shl", "shr"} and len(modifiers) == 1:
        shift = _shift_left if base == "shl" else _shift_right
        return Rule((kind, TYPES["u32"]), kind, shift)
    if key in {"mul.wide", "mad.wide"}:
        wide = np.dtype(WIDER[kind.str[1:]])
        compute = _wide_product if base == "mul" else _wide_multiply_add
        return Rule((kind, kind, wide)[: 2 if base == "mul" else 3], wide, compute)
    if key == "bfe":
        return Rule((kind, TYPES["u32"], TYPES["u32"]), kind, _bit_field)
    if op == "prmt.b32":
        return Rule((kind, kind, kind), kind, _permuted_bytes)
    table = _FLOATS if floating else _INTEGERS
    if op not in table and key not in table:
        raise Unknown(op)
    arity, compute = table.get(op) or table[key]
    return Rule((kind,) * arity, kind, compute)


def _select(a: Array, b: Array, which: Array) -> Array:
    return np.where(which, a, b)


def _shift_left(a: Array, by: Array) -> Array:
    bits = 8 * a.itemsize
    return np.where(by < bits, a << np.minimum(by, bits - 1).astype(a.dtype), 0)


def _shift_right(a: Array, by: Array) -> Array:
    bits = 8 * a.itemsize
    shifted = a >> np.minimum(by, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(by < bits, shifted, 0)


def _wide_product(a: Array, b: Array) -> Array:
    wide = WIDER[a.dtype.str[1:]]
    return a.astype(wide) * b.astype(wide)


def _wide_multiply_add(a: Array, b: Array, c: Array) -> Array:
    return _wide_product(a, b) + c


def _high_product(a: Array, b: Array) -> Array:
    if a.itemsize == 4:
        return _wide_product(a, b) >> 32
    pairs = zip(*np.broadcast_arrays(a, b), strict=True)
    return np.array([int(x) * int(y) >> 64 for x, y in pairs], a.dtype)


def _bit_field(a: Array, at: Array, count: Array) -> Array:
    at, count = np.minimum(at & 255, 31), np.minimum(count & 255, 32)
    count = np.minimum(count, 32 - at)
    field = (a.astype("i8") >> at) & ((1 << count.astype("i8")) - 1)
    if a.dtype.kind == "i":
        sign = np.where(count > 0, 1 << np.maximum(count.astype("i8") - 1, 0), 0)
        field = (field ^ sign) - sign
    return field


def _permuted_bytes(a: Array, b: Array, how: Array) -> Array:
    both = a.astype("u8") | b.astype("u8") << np.uint64(32)
    out = np.zeros(np.broadcast(a, b, how).shape, "u8")
    for i in range(4):
        pick = (how >> np.uint32(4 * i)).astype("u8") & np.uint64(15)
        byte = both >> (pick & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = np.where(byte >> np.uint64(7), np.uint64(255), np.uint64(0))
        byte = np.where(pick & np.uint64(8), sign, byte)
        out |= byte << np.uint64(8 * i)
    return out


def _quotient(a: Array, b: Array) -> Array:
    """Truncated towards zero; numpy rounds down."""
    some = np.where(b == 0, 1, b).astype(a.dtype)
    whole = a // some
    return whole + ((whole < 0) & (whole * some != a)) if a.dtype.kind == "i" else whole


def _remainder(a: Array, b: Array) -> Array:
    return a - _quotient(a, b) * b


def fused(a: Array, b: Array, c: Array) -> Array:
    """``a b + c`` with one rounding.

    The product is exact for float32; for float64 it has the 64 bits of numpy's long
    double, which differ from all 106 in one sum of a thousand by a last bit.
    """
    wide = "f8" if a.dtype == "f4" else np.longdouble
    return (a.astype(wide) * b + c).astype(a.dtype)


def _approximately(exact: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Let a function be off by up to most_ulps: by as much for equal arguments."""

    def compute(*values: Array) -> Array:
        found = exact(*values).astype("f4")
        bits = np.zeros(found.shape, "u4")
        for x in values:
            bits = (bits ^ x.view("u4")) * np.uint32(2654435761)
        by = (bits >> np.uint32(16)).astype("i4") % (2 * most_ulps + 1) - most_ulps
        moved = (found.view("i4") + by).view("f4")
        ordinary = np.isfinite(found) & (np.abs(found) > 1e-30) & np.isfinite(moved)
        return np.where(ordinary, moved, found).astype("f4")

    return compute


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.finfo("f4").tiny, np.copysign(x.dtype.type(0), x), x)


def _power2(x: Array) -> Array:
    return np.exp2(x.astype("f8"))


def _log2(x: Array) -> Array:
    return np.log2(x.astype("f8"))


def _rough_reciprocal(x: Array) -> Array:
    """Of the upper 32 bits, in the upper 32 bits; subnormal numbers are 0."""
    upper = np.uint64(0xFFFFFFFF00000000)
    x = np.where(np.isnan(x), x, (x.view("u8") & upper).view("f8"))
    x = np.where(np.abs(x) < np.finfo("f8").tiny, np.copysign(0.0, x), x)
    y = 1 / x
    y = np.where(np.abs(y) < np.finfo("f8").tiny, np.copysign(0.0, y), y)
    return np.where(np.isfinite(y), (y.view("u8") & upper).view("f8"), y)


def _saturated(x: Array, kind: np.dtype) -> Array:
    limits = np.iinfo(kind)
    whole = np.clip(np.where(np.isnan(x), 0, x), limits.min, limits.max)
    # the largest integer of 64 bits is no float
    return np.where(x >= limits.max, limits.max, whole.astype(kind)).astype(kind)


_ROUNDINGS = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}


def _conversion(op: str, modifiers: list[str]) -> Rule:
    *how, to, of = (m for m in modifiers if m != "sat")
    if to not in TYPES or of not in TYPES or len(how) > 1:
        raise Unknown(op)
    source, target = TYPES[of], TYPES[to]
    rounding = how[0] if how else ""

    def compute(x: Array) -> Array:
        if source.kind == "f" and rounding.endswith("i"):
            x = _ROUNDINGS[rounding[:-1]](x)
        if source.kind == "f" and target.kind != "f":
            return _saturated(x, target)
        return x.astype(target)

    return Rule((source,), target, compute)


_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _unordered(compare: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)


_FLOAT_COMPARISONS = _COMPARISONS | {
    "ne": lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
    **{f"{k}u": _unordered(_COMPARISONS[k]) for k in ("eq", "lt", "le", "gt", "ge")},
    "neu": np.not_equal,
}

# Name, with its modifiers but without its type: how many operands, and the function.
_INTEGERS: dict[str, tuple[int, Callable[..., Array]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul.lo": (2, operator.mul),
    "mul.hi": (2, _high_product),
    "mad.lo": (3, lambda a, b, c: a * b + c),
    "div": (2, _quotient),
    "rem": (2, _remainder),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "neg": (1, operator.neg),
    "abs": (1, np.abs),
    "and": (2, operator.and_),
    "or": (2, operator.or_),
    "xor": (2, operator.xor),
    "not": (1, np.invert),
    "mov": (1, lambda a: a),
}
_FLOATS: dict[str, tuple[int, Callable[..., Array]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "add.rn": (2, operator.add),
    "sub.rn": (2, operator.sub),
    "mul.rn": (2, operator.mul),
    "div.rn": (2, operator.truediv),
    "div.full": (2, _approximately(operator.truediv)),
    "fma.rn": (3, fused),
    # of a number and NaN: the number
    "min": (2, np.fmin),
    "max": (2, np.fmax),
    "neg": (1, operator.neg),
    "abs": (1, np.abs),
    "abs.ftz": (1, lambda a: np.abs(_flushed(a))),
    "mov": (1, lambda a: a),
    "ex2.approx": (1, _approximately(_power2)),
    "ex2.approx.ftz": (1, lambda a: _flushed(_approximately(_power2)(_flushed(a)))),
    "lg2.approx": (1, _approximately(_log2)),
    "rcp.approx.ftz": (1, _rough_reciprocal),
}
