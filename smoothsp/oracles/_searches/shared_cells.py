"""Cells of several structures that are one variable: how they are named, and checked.

The cells of a structure are the entries of its first potentials in a row. Those of all
structures are numbered one after the other. A variable is the least of its cells.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference import checks

Shared = Sequence[tuple[str, Tensor, str, Tensor]]


class Variables:
    """Variables of a batch of graphs.

    Parameters
    ----------
    of_cell
        ``(batch, cells)`` int64: the variable of each cell, the least of its cells.
    sizes
        Number of cells of each structure.

    Attributes
    ----------
    degree
        ``(batch, cells)`` float64: number of structures that have the variable of a
        cell, delta in the formulas.
    """

    def __init__(self, of_cell: Tensor, sizes: Sequence[int]) -> None:
        self.of_cell, self.sizes = of_cell, list(sizes)
        zeros = torch.zeros(of_cell.shape, dtype=torch.float64, device=of_cell.device)
        ones = torch.ones_like(zeros)
        cells = zeros.scatter_add(1, of_cell, ones)
        self.degree = cells.gather(1, of_cell)

    def select(self, rows: Tensor) -> "Variables":
        """Variables of some rows."""
        return Variables(self.of_cell[rows], self.sizes)

    def split(self, cells: Tensor) -> tuple[Tensor, ...]:
        """Cells ``(batch, cells)`` of each structure."""
        return torch.split(cells, self.sizes, 1)

    def mean(self, cells: Tensor) -> Tensor:
        """Mean over its cells of each variable, in all of them: ``(batch, cells)``."""
        total = torch.zeros_like(cells).scatter_add(1, self.of_cell, cells)
        return total.gather(1, self.of_cell) / self.degree.to(cells.dtype)


def variables_of(
    structures: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    shared: Shared,
    batch: int,
    device: torch.device,
) -> Variables:
    """Variables, of indices that name cells of the structures."""
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    total = sum(sizes)
    first = {name: sum(sizes[:i]) for i, name in enumerate(shapes)}
    if not shared and len(structures) > 1:
        raise ValueError(
            "shared: expected entries (name, index, name, index), got none; decode "
            "structures that share nothing one by one"
        )
    pairs = []
    for i, entry in enumerate(shared):
        a, index_a, b, index_b = _entry(i, entry, structures)
        cells = []
        for name, index in ((a, index_a), (b, index_b)):
            blame = f"shared[{i}], index of {name!r}"
            flat, exists = _flat(blame, index, shapes[name], batch, device)
            cells.append((name, blame, flat, exists))
        pairs.append(_same_pairs(i, cells, structures, shapes, batch, first))
    of_cell = torch.arange(total, device=device).repeat(batch, 1)
    # the least cell spreads over what is connected
    changed = bool(pairs)
    while changed:
        before = of_cell.clone()
        for a, b in pairs:
            least = torch.minimum(of_cell.gather(1, a), of_cell.gather(1, b))
            of_cell.scatter_reduce_(1, a, least, "amin")
            of_cell.scatter_reduce_(1, b, least, "amin")
        changed = not torch.equal(before, of_cell)
    found = Variables(of_cell, sizes)
    _refuse_twice(found, shapes)
    return found


def _entry(i: int, entry: object, structures: Mapping[str, Any]) -> Any:
    words = 'expected ("name", index, "name", index), two structures and their cells'
    if not isinstance(entry, tuple | list) or len(entry) != 4:
        raise TypeError(f"shared[{i}]: {words}, got {_kind(entry)}")
    for name in entry[::2]:
        if name not in structures:
            names = ", ".join(map(repr, structures))
            raise ValueError(
                f"shared[{i}]: expected the name of a structure, one of {names}, got "
                f"{name!r}"
            )
    if entry[0] == entry[2]:
        raise ValueError(
            f"shared[{i}]: {words}, got {entry[0]!r} twice; cells of one structure "
            "are different variables"
        )
    return entry


def _kind(entry: object) -> str:
    if isinstance(entry, tuple | list):
        return f"{len(entry)} entries"
    return type(entry).__name__


def _flat(
    blame: str, index: object, shape: Sequence[int], batch: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Numbers ``(batch or 1, k)`` of cells, and which are given."""
    found = checks.as_int64(blame, index, device)
    axes, given = len(shape), tuple(found.shape)
    if axes == 1 and found.dim() in (1, 2):
        found = found.unsqueeze(-1)
    elif found.dim() not in (2, 3) or found.shape[-1] != axes:
        one = "(k,)" if axes == 1 else f"(k, {axes})"
        many = "(batch, k)" if axes == 1 else f"(batch, k, {axes})"
        raise ValueError(
            f"{blame}: expected {one} or {many}, since the first potentials are "
            f"(batch, {', '.join(map(str, shape))}), got {given}"
        )
    found = found if found.dim() == 3 else found.unsqueeze(0)
    if len(found) != 1 or len(given) == 3 or (axes == 1 and len(given) == 2):
        checks.require_shape(
            blame, found, (batch, *found.shape[1:]), "an entry for each row"
        )
    exists = (found != -1).any(2)
    most = torch.tensor(list(shape), device=device)
    wrong = ((found < 0) | (found >= most)).any(2) & exists
    if bool(wrong.any()):
        row, at = wrong.nonzero()[0].tolist()
        cell = found[row, at].tolist()
        raise ValueError(
            f"{blame}: expected a cell of {tuple(shape)}, or -1 for none, got "
            f"{tuple(cell)} at row {row}, entry {at}"
        )
    flat = torch.zeros(found.shape[:2], dtype=torch.int64, device=device)
    for axis, size in enumerate(shape):
        flat = flat * size + found[..., axis].clamp(min=0)
    return flat, exists


def _same_pairs(
    i: int,
    cells: Any,
    structures: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    batch: int,
    first: Mapping[str, int],
) -> tuple[Tensor, Tensor]:
    """Pairs of cells ``(batch, k)`` that are one; of nothing, cell 0 with itself."""
    (a, blame_a, flat_a, here), (b, blame_b, flat_b, there) = cells
    if flat_a.shape[1] != flat_b.shape[1]:
        raise ValueError(
            f"{blame_b}: expected as many cells as of {a!r}, {flat_a.shape[1]}, got "
            f"{flat_b.shape[1]}"
        )
    flat_a, here, flat_b, there = (
        x.expand(batch, -1) for x in (flat_a, here, flat_b, there)
    )
    if not torch.equal(here, there):
        row, at = (here != there).nonzero()[0].tolist()
        raise ValueError(
            f"{blame_b}: expected -1 where the index of {a!r} has it, got a cell and "
            f"-1 at row {row}, entry {at}"
        )
    # cells that no output uses: padding in both is none, in one alone an error
    real = []
    for name, flat in ((a, flat_a), (b, flat_b)):
        read = cells_read(structures[name], shapes[name])
        real.append(here if read is None else read.gather(1, flat) & here)
    alone = (real[0] != real[1]) & here
    if bool(alone.any()):
        row, at = alone.nonzero()[0].tolist()
        blame, other = (blame_b, a) if bool(real[0][row, at]) else (blame_a, b)
        raise ValueError(
            f"{blame}: expected cells that outputs can use, got padding at row {row}, "
            f"entry {at}, for a real cell of {other!r}; write -1 there in an index for "
            "each row, (batch, k, ...)"
        )
    start = flat_a.new_tensor([first[a], first[b]])
    pair = flat_a + start[0], flat_b + start[1]
    kept = real[0] & real[1]
    zero = torch.zeros_like(flat_a)
    return torch.where(kept, pair[0], zero), torch.where(kept, pair[1], zero)


def cells_read(structure: Any, shape: Sequence[int]) -> Tensor | None:
    """Bool ``(batch, cells)``: False for padding; None where nothing tells."""
    mask = getattr(structure, "mask", None)
    main = getattr(structure, "_first_potentials", None)
    if main is None:
        return None
    read = structure._usable_parts(structure._first_name)
    if read is None and isinstance(mask, Tensor) and main.dim() == 3:
        read = mask.unsqueeze(-1)
    return None if read is None else read.expand_as(main).flatten(1)


def _refuse_twice(found: Variables, shapes: Mapping[str, Sequence[int]]) -> None:
    """Require that no two cells of one structure are one variable."""
    place = 0
    for name, size in zip(shapes, found.sizes, strict=True):
        mine = found.of_cell[:, place : place + size]
        ranked, order = mine.sort(dim=1, stable=True)
        twice = (ranked[:, 1:] == ranked[:, :-1]).nonzero()
        if len(twice):
            row, at = twice[0].tolist()
            both = [
                tuple(int(x) for x in torch.unravel_index(order[row, j], shapes[name]))
                for j in (at, at + 1)
            ]
            raise ValueError(
                f"shared: expected each cell of {name!r} to be another variable, got "
                f"cells {both[0]} and {both[1]} as one at row {row}"
            )
        place += size
