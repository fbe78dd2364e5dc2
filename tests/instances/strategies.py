"""Hypothesis draws small instances that hurt: ties, -inf, huge spreads, holes, NaN."""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from smoothsp.oracles import Chain, Multiclass
from tests.truth.chain_cases import Case, ChainCase, MulticlassCase

# How far apart potentials lie. exp() of the last two leaves float32, then float64.
SPREADS = ("ties", "normal", "wide", "huge")


def structure(case: Case) -> Chain | Multiclass:
    """Build the structure that a case describes."""
    if isinstance(case, MulticlassCase):
        return Multiclass(case.scores, mask=case.mask)
    return Chain(
        case.emissions,
        case.transitions,
        case.start,
        case.end,
        lengths=case.lengths,
        mask=case.mask,
    )


def values(generator: torch.Generator, spread: str, *shape: int) -> Tensor:
    """Return potentials of one spread; "ties" are small integers."""
    if spread == "ties":
        return torch.randint(-1, 2, shape, generator=generator).double()
    scale = {"normal": 1.0, "wide": 100.0, "huge": 1000.0}[spread]
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


@st.composite
def generators(draw: st.DrawFn) -> torch.Generator:
    """Draw a seeded generator: numbers come from it, shapes from hypothesis."""
    return torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))


@st.composite
def masks(draw: st.DrawFn, B: int, T: int) -> dict[str, Tensor]:
    """Draw nothing, lengths, or a mask: with holes, padded left, with empty rows."""
    kind = draw(st.sampled_from(["none", "lengths", "right", "left", "holes"]))
    if kind == "none":
        return {}
    if kind == "holes":
        flat = draw(st.lists(st.booleans(), min_size=B * T, max_size=B * T))
        return {"mask": torch.tensor(flat, dtype=torch.bool).reshape(B, T)}
    drawn = draw(st.lists(st.integers(0, T), min_size=B, max_size=B))
    lengths = torch.tensor(drawn, dtype=torch.int64)
    if kind == "lengths":
        return {"lengths": lengths}
    right = torch.arange(T) < lengths[:, None]
    return {"mask": right if kind == "right" else right.flip(1)}


def forbid_some(case: ChainCase, generator: torch.Generator) -> ChainCase:
    """Put -inf on a third of the parts, but on none of one hidden output a row."""
    B, T, S = case.emissions.shape
    hidden = torch.randint(0, S, (B, T), generator=generator)
    if case.transitions.ndim == 2:
        # Many rows would keep all of the transitions that they share.
        hidden = hidden[:1].expand(B, T)
    keep = {name: torch.zeros_like(v).bool() for name, v in case.potentials().items()}
    for b in range(B):
        positions = case.positions(b)
        for i, t in enumerate(positions):
            keep["emissions"][b, t, hidden[b, t]] = True
            if i > 0:
                edge = (hidden[b, positions[i - 1]], hidden[b, t])
                where = () if case.transitions.ndim == 2 else (b, t - 1)
                keep["transitions"][(*where, *edge)] = True
        for name, place in (("start", 0), ("end", -1)):
            if positions and name in keep:
                keep[name][hidden[b, positions[place]]] = True
    return case.replace(
        **{
            name: v.masked_fill(
                ~keep[name] & (torch.rand(v.shape, generator=generator) < 0.35),
                -math.inf,
            )
            for name, v in case.potentials().items()
        }
    )


def read(case: Case) -> dict[str, Tensor]:
    """Return, for each potential with a batch axis, what a structure may read."""
    if isinstance(case, MulticlassCase):
        return {"scores": case.real}
    real = case.real
    may = {"emissions": real[:, :, None].expand(case.emissions.shape)}
    if case.transitions.ndim == 4:
        into = real[:, 1:] & (real.cumsum(1)[:, :-1] > 0)
        may["transitions"] = into[:, :, None, None].expand(case.transitions.shape)
    return may


def fill_padding(case: Case, value: float) -> Case:
    """Put a value wherever a structure must not look."""
    may = read(case)
    return case.replace(
        **{name: getattr(case, name).masked_fill(~m, value) for name, m in may.items()}
    )


@st.composite
def chains(
    draw: st.DrawFn,
    spreads: tuple[str, ...] = SPREADS,
    forbid: bool | None = None,
    poison: bool | None = None,
    min_batch: int = 0,
    min_time: int = 1,
) -> ChainCase:
    """Draw a chain; ``forbid`` puts -inf on parts, ``poison`` NaN in the padding."""
    # Few rows and many: a vector's lanes hold 8 or 16 rows.
    B = draw(st.integers(min_batch, 3) | st.sampled_from([5, 9, 17]))
    T, S = draw(st.integers(min_time, 5)), draw(st.integers(1, 4))
    generator, spread = draw(generators()), draw(st.sampled_from(spreads))
    edges = (B, T - 1, S, S) if draw(st.booleans()) else (S, S)
    case = ChainCase(
        values(generator, spread, B, T, S),
        values(generator, spread, *edges),
        values(generator, spread, S) if draw(st.booleans()) else None,
        values(generator, spread, S) if draw(st.booleans()) else None,
        **draw(masks(B, T)),
    )
    if draw(st.booleans()) if forbid is None else forbid:
        case = forbid_some(case, generator)
    if draw(st.booleans()) if poison is None else poison:
        case = fill_padding(case, math.nan)
    return case


@st.composite
def multiclasses(
    draw: st.DrawFn,
    spreads: tuple[str, ...] = SPREADS,
    forbid: bool | None = None,
    poison: bool | None = None,
    min_batch: int = 0,
) -> MulticlassCase:
    """Draw candidate lists, some shorter than others, some empty."""
    B, M = draw(st.integers(min_batch, 3)), draw(st.integers(1, 6))
    generator, spread = draw(generators()), draw(st.sampled_from(spreads))
    drawn = draw(masks(B, M))
    if "lengths" in drawn:
        drawn = {"mask": torch.arange(M) < drawn["lengths"][:, None]}
    case = MulticlassCase(values(generator, spread, B, M), **drawn)
    if draw(st.booleans()) if forbid is None else forbid:
        first = case.real & (case.real.cumsum(1) == 1)
        some = torch.rand(B, M, generator=generator) < 0.35
        case = case.replace(scores=case.scores.masked_fill(some & ~first, -math.inf))
    if draw(st.booleans()) if poison is None else poison:
        case = fill_padding(case, math.nan)
    return case


CASES = {"chain": chains, "multiclass": multiclasses}
every_structure = pytest.mark.parametrize("kind", sorted(CASES))


def draw_case(data: st.DataObject, kind: str, **options: object) -> Case:
    """Draw a case of one kind of structure inside a test."""
    return data.draw(CASES[kind](**options), label="case")


def draw_outputs(case: Case, generator: torch.Generator, padding: int = -100) -> Tensor:
    """Return one feasible output a row, ``padding`` where nothing is labelled."""
    chosen = []
    for row in case:
        feasible = (row.scores > -math.inf).nonzero().flatten()
        place = torch.randint(len(feasible), (), generator=generator)
        chosen.append(row.outputs[feasible[place]])
    shape = case.real.shape if isinstance(case, ChainCase) else (len(case),)
    y = torch.stack(chosen) if chosen else torch.zeros(shape, dtype=torch.int64)
    return torch.where(y == -1, padding, y)
