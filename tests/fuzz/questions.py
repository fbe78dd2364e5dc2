"""Questions to a structure: lines of Python, and what they should give."""

import itertools
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import torch

from tests.fuzz.cases import Case, Changed, literal
from tests.fuzz.truth import Row, l2, log_sum, softmax

Check = Callable[[dict[str, Any]], Iterator[str]]
Asked = tuple[list[str], Check] | None
Floats = np.ndarray

# A result may be wrong by so many roundings of itself, or of 1 if it is smaller, in
# its dtype, and by as many of the scores that it is computed from, in float64.
ROUNDINGS = 16
DRAWS = 200


def tolerance(
    case: Case, rows: list[Row], true: Floats, reach: Floats | float
) -> Floats:
    size = max((row.size for row in rows), default=0.0)
    largest = np.maximum(1, np.abs(np.where(np.isfinite(true), true, 0)))
    # the solver of integer programmes is exact to 1e-6 of the largest score
    least = 1e-6 / ROUNDINGS if case.kind == "IntegerProgram" else np.finfo(float).eps
    wide = least * (1 + size) * np.maximum(1, reach)
    return ROUNDINGS * (case.eps * largest + wide)


def close(
    case: Case, rows: list[Row], name: str, found: Any, true: Any, reach: Any = 1.0
) -> Iterator[str]:
    found = found.detach()
    if str(found.dtype) != f"torch.{case.dtype}":
        yield f"dtype of {name}: expected {case.dtype}, got {found.dtype}"
    found, true = found.double().numpy(), np.asarray(true, float)
    if found.shape != true.shape:
        yield f"shape of {name}: expected {true.shape}, got {found.shape}"
        return
    with np.errstate(invalid="ignore"):
        wrong = np.abs(found - true) > tolerance(case, rows, true, reach)
    wrong = np.where(np.isfinite(true), wrong | ~np.isfinite(found), found != true)
    if wrong.any():
        expected = np.array2string(true, separator=", ", floatmode="unique")
        got = np.array2string(found, separator=", ", floatmode="unique")
        yield f"{name}: expected\n{expected}\ngot\n{got}"


def by_row(
    changed: Changed, rows: list[Row], slopes: list[Floats]
) -> dict[str, Floats]:
    """Sum slopes of the rows, and give them the potentials' shapes."""
    found = {}
    for name, x in changed.potentials.items():
        total = np.zeros(x.shape)
        for row, slope in zip(rows, slopes, strict=True):
            total += slope[row.slices[name]].reshape(x.shape)
        found[name] = total
    return changed.before(found)


def gradient(total: str, names: str) -> str:
    given = f"{total}, ({names},), materialize_grads=True"
    return f"slopes = torch.autograd.grad({given})"


def with_gradient(
    lines: list[str],
    case: Case,
    changed: Changed,
    rows: list[Row],
    rng: Random,
    true: list[float],
    slopes: list[Floats] | None,
    others: list[Floats] | None = None,
    reach: float = 1.0,
    from_rows: list[Row] | None = None,
    reach_of_value: float = 1.0,
) -> Asked:
    """Ask for ``value``, a number for each row, and for the gradient of its sum."""
    weights = np.array([rng.choice((0.5, 1.0, 2.0)) for _ in rows])
    names = list(case.potentials)
    differentiable = case.grad and slopes is not None and np.isfinite(true).all()
    if differentiable:
        first = ", ".join(names + ([f"other_{x}" for x in names] if others else []))
        weighed = f"value * {literal(weights, case.dtype)}" if rows else "value"
        lines = [
            *lines,
            f"total = ({weighed}).sum()",
            gradient("total", first),
            "print(value, *slopes, sep='\\n')",
        ]
    else:
        lines = [*lines, "print(value)"]

    sources = from_rows or rows

    def check(given: dict[str, Any]) -> Iterator[str]:
        yield from close(case, sources, "value", given["value"], true, reach_of_value)
        if differentiable:
            expected: list[Floats] = []
            for each in (slopes, others) if others else (slopes,):
                weighed = [w * x for w, x in zip(weights, each, strict=True)]
                expected += by_row(changed, rows, weighed).values()
            found = given["slopes"]
            for name, x, y in zip(first.split(", "), found, expected, strict=True):
                what = f"gradient of {name}"
                wide = reach * 2 * max(1, len(rows))
                yield from close(case, sources, what, x, y, wide)

    return lines, check


def spread(rows: list[Row]) -> float:
    """The largest difference of scores that have a probability."""
    far = [np.abs(row.above[row.p > 0]).max() for row in rows]
    return float(max(far, default=1.0))


def log_partition(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    true = [row.best + row.log_sum for row in rows]
    lines = ["value = structure.log_partition()"]
    return with_gradient(lines, case, changed, rows, rng, true, [r.means for r in rows])


def entropy(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    true = [-row.mean(row.log_p) for row in rows]
    slopes = [-row.covariance(row.log_p) for row in rows]
    lines = ["value = structure.entropy()"]
    far = spread(rows)
    return with_gradient(lines, case, changed, rows, rng, true, slopes, reach=far)


def log_count(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    true = [math.log(row.count) for row in rows]
    return with_gradient(
        ["value = structure.log_count()"], case, changed, rows, rng, true, None
    )


def some_output(row: Row, rng: Random) -> int:
    return rng.choice(np.flatnonzero(row.allowed).tolist())


def stacked(rows: list[Row], chosen: list[int]) -> str:
    if rows:
        return literal(np.stack([r.ys[i] for r, i in zip(rows, chosen, strict=True)]))
    return "structure.decode()[1]"


def log_prob(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    chosen = [some_output(row, rng) for row in rows]
    true = [row.log_p[i] for row, i in zip(rows, chosen, strict=True)]
    slopes = [row.uses[i] - row.means for row, i in zip(rows, chosen, strict=True)]
    lines = [f"y = {stacked(rows, chosen)}", "value = structure.log_prob(y)"]
    return with_gradient(lines, case, changed, rows, rng, true, slopes)


def score(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    chosen = [some_output(row, rng) for row in rows]
    true = [row.scores()[i] for row, i in zip(rows, chosen, strict=True)]
    slopes = [row.uses[i] for row, i in zip(rows, chosen, strict=True)]
    lines = [f"y = {stacked(rows, chosen)}", "value = structure.score(y)"]
    return with_gradient(lines, case, changed, rows, rng, true, slopes)


def decode(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    true = [row.best for row in rows]
    lines = ["value, y = structure.decode()", "print(value, y, sep='\\n')"]
    if case.grad:
        names = ", ".join(case.potentials)
        lines.append(gradient("value.sum()", names))

    def check(given: dict[str, Any]) -> Iterator[str]:
        yield from close(case, rows, "value", given["value"], true)
        found = []
        for row, y in zip(rows, given["y"], strict=True):
            yield from attains(case, row, y, 0.0)
            found.append(row.uses[place(row, y)])
        if case.grad:
            expected = by_row(changed, rows, found).values()
            for name, x, slope in zip(
                case.potentials, given["slopes"], expected, strict=True
            ):
                yield from close(case, rows, f"gradient of {name}", x, slope)

    return lines, check


def place(row: Row, y: torch.Tensor) -> int:
    return row.places.get(tuple(y.flatten().long().tolist()), -1)


def attains(case: Case, row: Row, y: torch.Tensor, below: float) -> Iterator[str]:
    """Whether y is an output whose score is ``below`` that of the best."""
    i = place(row, y)
    if i < 0 or not row.allowed[i]:
        yield f"y: expected an output, got {y.tolist()}"
        return
    room = tolerance(case, [row], np.array(row.best), 1.0)
    if not abs(row.above[i] - below) <= room:
        got = f"{row.above[i]} of {y.tolist()}"
        yield f"y: expected a score {below} from the best, got {got}"


def decode_topk(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    k = rng.choice((1, 2, 3, 5))
    lines = [f"values, ys, valid = structure.decode_topk({k})"]
    lines.append("print(values, ys, valid, sep='\\n')")

    def check(given: dict[str, Any]) -> Iterator[str]:
        ranked = [np.sort(row.above)[::-1][:k] for row in rows]
        ranked = [np.pad(x, (0, k - len(x)), constant_values=-math.inf) for x in ranked]
        true = [x + row.best for x, row in zip(ranked, rows, strict=True)]
        yield from close(
            case, rows, "values", given["values"], np.reshape(true, (-1, k))
        )
        for b, row in enumerate(rows):
            there = np.isfinite(ranked[b])
            if given["valid"][b].tolist() != there.tolist():
                got = given["valid"][b].tolist()
                yield f"valid: expected {there.tolist()}, got {got}"
            seen = []
            for y, above in zip(given["ys"][b], ranked[b], strict=True):
                if np.isfinite(above):
                    yield from attains(case, row, y, above)
                    seen.append(place(row, y))
            if len(set(seen)) < len(seen):
                yield f"ys: expected distinct outputs, got {given['ys'][b].tolist()}"

    return lines, check


def of_parts(
    changed: Changed, rows: list[Row], name: str, values: list[Floats]
) -> Floats:
    """A number for each potential that a row may use."""
    x = changed.potentials[name]
    own = changed.case.axes[name][:1] == "B"
    shape = x.shape[1:] if own else x.shape
    found = np.zeros((len(rows), *shape))
    for b, (row, v) in enumerate(zip(rows, values, strict=True)):
        every = v[row.slices[name]].reshape(x.shape)
        found[b] = every[b] if own else every
    return found


def of_words(case: Case) -> bool:
    """Whether scores are of words where parts are all spans."""
    return case.axes.get("spans") == "BNS"


def marginals(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    names = list(case.potentials)
    named = case.kind not in (
        "Chain",
        "Multiclass",
        "SpanningTree",
        "UndirectedSpanningTree",
    )
    name = rng.choice(names) if named else names[0]
    if name == "spans" and of_words(case):
        return None
    lines = [
        f"value = structure.marginals({name!r})"
        if named
        else "value = structure.marginals()"
    ]
    lines.append("print(value)")
    true = of_parts(changed, rows, name, [row.means for row in rows])

    def check(given: dict[str, Any]) -> Iterator[str]:
        yield from close(case, rows, "value", given["value"], true)

    return lines, check


def edge_marginals(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    _, steps, states = changed.potentials["emissions"].shape
    true = np.zeros((len(rows), max(steps - 1, 0), states, states))
    for b, row in enumerate(rows):
        for y, p in zip(row.ys, row.p, strict=True):
            at = np.flatnonzero(y >= 0)
            for s, t in itertools.pairwise(at):
                true[b, t - 1, y[s], y[t]] += p

    def check(given: dict[str, Any]) -> Iterator[str]:
        yield from close(case, rows, "value", given["value"], true)

    return ["value = structure.edge_marginals()", "print(value)"], check


def max_marginals(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    name = next(iter(case.potentials))
    if of_words(case):
        return None
    tops = []
    for row in rows:
        scores = np.where(row.uses != 0, row.scores()[:, None], -math.inf)
        tops.append(scores.max(0))
    true = of_parts(changed, rows, name, tops)

    def check(given: dict[str, Any]) -> Iterator[str]:
        yield from close(case, rows, "value", given["value"], true)

    return ["value = structure.max_marginals()", "print(value)"], check


def divergence(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    others = [
        Row(case.structure, case.other, case.arrays, case.options, b)
        for b in range(len(rows))
    ]
    if not all(row.count for row in others):
        return None
    true, slopes, further = [], [], []
    far = spread(rows) + spread(others)
    for p, q in zip(rows, others, strict=True):
        inside = bool(q.allowed[p.allowed].all())
        log_q = np.where(p.p > 0, q.log_p, 0.0)
        if case.question == "kl":
            log_q = log_q - np.where(p.p > 0, p.log_p, 0.0)
        true.append(-p.mean(log_q) if inside else math.inf)
        if inside:
            far = max(far, np.abs(log_q[p.p > 0]).max())
            slopes.append(-p.covariance(log_q))
            further.append(q.means - p.means)
    lines = [f"value = structure.{case.question}(other)"]
    slopes_of_both = (slopes, further or None)
    # rounded scores of p move its probabilities, which weigh these
    further_rows = ([*rows, *others], max(1.0, far))
    return with_gradient(
        lines, case, changed, rows, rng, true, *slopes_of_both, far, *further_rows
    )


def log_prob_within(
    case: Case, changed: Changed, rows: list[Row], rng: Random
) -> Asked:
    name, x = next(iter(changed.potentials.items()))
    allowed = np.array([rng.random() < 0.7 for _ in range(x.size)], bool)
    for row in rows:
        allowed |= row.uses[some_output(row, rng)][row.slices[name]] != 0
    true, slopes = [], []
    for row in rows:
        bad = (row.uses[:, row.slices[name]] != 0) & ~allowed
        inside = np.where(bad.any(1), -math.inf, row.log_p)
        true.append(log_sum(inside))
        slopes.append(softmax(inside) @ row.uses - row.means)
    lines = [f"allowed = {literal(allowed.reshape(x.shape))}"]
    lines.append("value = structure.log_prob_within(allowed)")
    return with_gradient(lines, case, changed, rows, rng, true, slopes)


def sample(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    replaced = rng.random() < 0.7
    n = DRAWS if replaced else 4
    more = "" if replaced else ", replace=False"
    seed = f"torch.Generator().manual_seed({rng.randrange(100)})"
    lines = [f"draws = structure.sample({n}, generator={seed}{more})", "print(draws)"]

    def check(given: dict[str, Any]) -> Iterator[str]:
        for row, draws in zip(rows, given["draws"], strict=True):
            # probabilities that are not rounded to 0 can be drawn
            there = n if replaced else min(n, int((row.log_p > -700).sum()))
            places = [place(row, y) for y in draws[:there]]
            if any(i < 0 or not row.allowed[i] for i in places):
                yield f"draws: expected outputs, got {draws.tolist()}"
                return
            if not replaced:
                if len(set(places)) < len(places):
                    yield f"draws: expected distinct outputs, got {draws.tolist()}"
                continue
            counts = np.bincount(places, minlength=len(row.ys))
            # Bernstein: exceeded once in 1e12
            rate = math.log(2e12)
            variance = n * row.p * (1 - row.p)
            room = rate / 3 + np.sqrt(rate**2 / 9 + 2 * rate * variance)
            if (np.abs(counts - n * row.p) > room).any():
                yield f"draws: expected frequencies {row.p}, got {counts / n}"

    return lines, check


def hamming(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    """The cost is a sum over the parts of each output."""
    if case.kind == "BoxSearch" or of_words(case):
        return None
    name, x = next(iter(changed.potentials.items()))
    chosen = [some_output(row, rng) for row in rows]
    lines = [
        f"y = {stacked(rows, chosen)}",
        "cost = structure.hamming(y)",
        "print(cost)",
    ]

    def check(given: dict[str, Any]) -> Iterator[str]:
        cost = given["cost"]
        if tuple(cost.shape) != x.shape:
            yield f"shape of cost: expected {x.shape}, got {tuple(cost.shape)}"
            return
        flat = cost.double().flatten().numpy()
        for row, i in zip(rows, chosen, strict=True):
            found = row.uses[:, row.slices[name]] @ flat
            true = np.array([case.structure.cost(y, row.ys[i]) for y in row.ys])
            if not np.allclose(found, true, rtol=0, atol=1e-12):
                yield f"costs: expected {true.tolist()}, got {found.tolist()}"

    return lines, check


def loss(case: Case, changed: Changed, rows: list[Row], rng: Random) -> Asked:
    sums = case.structure.sums
    kinds = ["StructuredPerceptron", "StructuralHinge", "StructuralHinge"]
    kinds += ["CRFLoss", "CRFLoss", "Entropy"] if sums else []
    kinds += ["L2"] if case.structure.topk else []
    kind = rng.choice(kinds)
    mu, k = rng.choice((0.5, 1.0, 3.0)), rng.choice((1, 2, 3, 5))
    scale = rng.choice((0.1, 0.7, 1.0, 3.0))
    cost = rng.choice(case.structure.costs)
    reduction = rng.choice(("none", "sum", "mean"))
    weight = np.array([rng.choice((0.5, 1.0, 2.0)) for _ in rows])
    weighed = rng.random() < 0.5
    weight = weight if weighed else np.ones(len(rows))
    chosen = [some_output(row, rng) for row in rows]
    lines = [f"y = {stacked(rows, chosen)}"]
    more = []
    smoothing = {"Entropy": f"Entropy({mu})", "L2": f"L2({mu}, {k})"}.get(kind)
    name, x = next(iter(changed.potentials.items()))
    parts = np.zeros(x.size)
    if kind in ("StructuralHinge", "Entropy", "L2"):
        given = [smoothing] if smoothing else []
        if cost == "none":
            given.append("cost=None")
        elif cost == "tensor":
            parts = np.array([rng.choice((0.0, 0.1, 0.25, 1.0)) for _ in range(x.size)])
            parts = parts.astype(case.dtype).astype(float)
            lines.append(f"cost = {literal(parts.reshape(x.shape), case.dtype)}")
            given.append("cost=cost")
        given.append(f"cost_scale={scale}")
        text = f"StructuralHinge({', '.join(given)}, reduction={reduction!r})"
    else:
        text = f"{kind}(reduction={reduction!r})"
        cost = "none"
    if weighed:
        lines.append(f"weight = {literal(weight, case.dtype)}")
        more = ["weight"]
    lines.append(f"loss = {text}")
    lines.append(f"value = loss({', '.join(['structure', 'y', *more])})")

    true, slopes = [], []
    clear = True
    for row, i in zip(rows, chosen, strict=True):
        z = row.minus(i)
        if cost == "hamming":
            z = z + scale * np.array(
                [case.structure.cost(y, row.ys[i]) for y in row.ys]
            )
        elif cost == "tensor":
            z = z + scale * (row.uses[:, row.slices[name]] @ parts)
        z, uses = z[row.allowed], row.uses[row.allowed]
        if kind == "CRFLoss":
            value, u = log_sum(z), softmax(z)
        elif kind == "Entropy":
            value, u = mu * log_sum(z / mu), softmax(z / mu)
        else:
            order = np.argsort(-z, kind="stable")
            most = k if kind == "L2" else 1
            clear &= len(z) <= most or z[order[most - 1]] - z[order[most]] > 0.01
            u = np.zeros(len(z))
            value, u[order[:most]] = l2(z[order[:most]], mu)
        true.append(value)
        slopes.append(u @ uses - row.uses[i])
    # costs that are added to large scores are added exactly
    share = weight if reduction != "mean" else weight / max(weight.sum(), 1e-300)
    weighted = [w * v for w, v in zip(share, true, strict=True)]
    expected = weighted if reduction == "none" else math.fsum(weighted)
    differentiable = case.grad and clear
    lines.append("print(value)")
    if differentiable:
        names = ", ".join(case.potentials)
        lines.append(gradient("value.sum()", names))

    def check(given: dict[str, Any]) -> Iterator[str]:
        yield from close(case, rows, "value", given["value"], expected)
        if differentiable:
            found = [w * s for w, s in zip(share, slopes, strict=True)]
            every = by_row(changed, rows, found).values()
            for name, x, slope in zip(
                case.potentials, given["slopes"], every, strict=True
            ):
                reach = 2 * max(1, len(rows)) / min(mu, 1)
                yield from close(case, rows, f"gradient of {name}", x, slope, reach)

    return lines, check


QUESTIONS = {
    "decode": decode,
    "score": score,
    "loss": loss,
}
OF_TOPK = {"decode_topk": decode_topk}
OF_PARTS = {"max_marginals": max_marginals}
OF_COSTS = {"hamming": hamming}
OF_SUMS = {
    "log_partition": log_partition,
    "entropy": entropy,
    "log_count": log_count,
    "log_prob": log_prob,
    "marginals": marginals,
    "kl": divergence,
    "cross_entropy": divergence,
    "log_prob_within": log_prob_within,
    "sample": sample,
}
OF_CHAINS = {"edge_marginals": edge_marginals}
EVERY = QUESTIONS | OF_TOPK | OF_PARTS | OF_COSTS | OF_SUMS | OF_CHAINS


def questions_of(kind: Any) -> list[str]:
    """Names of questions; losses, which are many, more than once."""
    found = [*QUESTIONS, "loss", "loss"]
    for has, some in (
        (kind.topk, OF_TOPK),
        (kind.parts, OF_PARTS),
        ("hamming" in kind.costs, OF_COSTS),
        (kind.sums, [*OF_SUMS, "entropy", "entropy"]),
        (kind.name == "Chain", OF_CHAINS),
    ):
        found += some if has else []
    return found
