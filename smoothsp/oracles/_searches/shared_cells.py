"""Variables of a factor graph: cells of structures that ``shared`` identifies.

A cell is an entry of a structure's first potentials in a row. Cells are numbered
through all structures in order. The number of a variable is that of its first cell.
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
    variable_of_cell
        ``(batch, cells)`` int64: number of the variable of each cell.
    sizes
        Number of cells of each structure.

    Attributes
    ----------
    num_structures
        ``(batch, cells)`` float64: number of structures that have the variable of each
        cell, delta in the formulas.
    """

    def __init__(self, variable_of_cell: Tensor, sizes: Sequence[int]) -> None:
        self.variable_of_cell, self.sizes = variable_of_cell, list(sizes)
        zeros = torch.zeros(
            variable_of_cell.shape, dtype=torch.float64, device=variable_of_cell.device
        )
        ones = torch.ones_like(zeros)
        counts = zeros.scatter_add(1, variable_of_cell, ones)
        # in float64 as a divisor; a variable has at most one cell of each structure
        self.num_structures = counts.gather(1, variable_of_cell)

    def select(self, rows: Tensor) -> "Variables":
        """Variables of the selected rows."""
        return Variables(self.variable_of_cell[rows], self.sizes)

    def split(self, cells: Tensor) -> tuple[Tensor, ...]:
        """Split ``cells (batch, cells)`` by structure."""
        return torch.split(cells, self.sizes, 1)

    def mean(self, cells: Tensor) -> Tensor:
        """Replace each cell by the mean over the cells of its variable."""
        total = torch.zeros_like(cells).scatter_add(1, self.variable_of_cell, cells)
        return total.gather(1, self.variable_of_cell) / self.num_structures.to(
            cells.dtype
        )


def build_variables(
    structures: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    shared: Shared,
    batch: int,
    device: torch.device,
) -> Variables:
    """Build the variables from ``shared``, whose indices name cells of structures."""
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    total = sum(sizes)
    offsets = {name: sum(sizes[:i]) for i, name in enumerate(shapes)}
    if not shared and len(structures) > 1:
        raise ValueError(
            "shared: expected entries (name, index, name, index), got none; decode "
            "structures that share nothing one by one"
        )
    pairs = []
    for i, entry in enumerate(shared):
        a, index_a, b, index_b = _require_shared_entry(i, entry, structures)
        cells = []
        for name, index in ((a, index_a), (b, index_b)):
            argument = f"shared[{i}], index of {name!r}"
            numbers, exists = _as_cell_numbers(
                argument, index, shapes[name], batch, device
            )
            cells.append((name, argument, numbers, exists))
        pairs.append(_pair_shared_cells(i, cells, structures, shapes, batch, offsets))
    variable_of_cell = torch.arange(total, device=device).repeat(batch, 1)
    # connected components by label propagation: the smallest number of two paired cells
    # spreads until nothing changes. A component has at most one cell of each structure,
    # so few passes suffice
    changed = bool(pairs)
    while changed:
        previous = variable_of_cell.clone()
        for a, b in pairs:
            smallest = torch.minimum(
                variable_of_cell.gather(1, a), variable_of_cell.gather(1, b)
            )
            variable_of_cell.scatter_reduce_(1, a, smallest, "amin")
            variable_of_cell.scatter_reduce_(1, b, smallest, "amin")
        changed = not torch.equal(previous, variable_of_cell)
    variables = Variables(variable_of_cell, sizes)
    _require_distinct_variables(variables, shapes)
    return variables


def _require_shared_entry(i: int, entry: object, structures: Mapping[str, Any]) -> Any:
    """Return the entry if it names cells of two structures; raise otherwise."""
    expected = 'expected ("name", index, "name", index), two structures and their cells'
    if not isinstance(entry, tuple | list) or len(entry) != 4:
        raise TypeError(f"shared[{i}]: {expected}, got {_description(entry)}")
    for name in entry[::2]:
        if name not in structures:
            names = ", ".join(map(repr, structures))
            raise ValueError(
                f"shared[{i}]: expected the name of a structure, one of {names}, got "
                f"{name!r}"
            )
    if entry[0] == entry[2]:
        raise ValueError(
            f"shared[{i}]: {expected}, got {entry[0]!r} twice; cells of one structure "
            "are different variables"
        )
    return entry


def _description(entry: object) -> str:
    if isinstance(entry, tuple | list):
        return f"{len(entry)} entries"
    return type(entry).__name__


def _as_cell_numbers(
    argument: str, index: object, shape: Sequence[int], batch: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Flat numbers ``(batch or 1, k)`` of the indexed cells, and True unless -1."""
    cells = checks.as_int64(argument, index, device)
    # (batch, k) of one axis and (k, axes) have the same rank: the axes decide
    axes, shape_passed = len(shape), tuple(cells.shape)
    if axes == 1 and cells.dim() in (1, 2):
        cells = cells.unsqueeze(-1)
    elif cells.dim() not in (2, 3) or cells.shape[-1] != axes:
        shared_form = "(k,)" if axes == 1 else f"(k, {axes})"
        row_form = "(batch, k)" if axes == 1 else f"(batch, k, {axes})"
        raise ValueError(
            f"{argument}: expected {shared_form} or {row_form}, since the first "
            f"potentials are (batch, {', '.join(map(str, shape))}), got {shape_passed}"
        )
    cells = cells if cells.dim() == 3 else cells.unsqueeze(0)
    if (
        len(cells) != 1
        or len(shape_passed) == 3
        or (axes == 1 and len(shape_passed) == 2)
    ):
        checks.require_shape(
            argument, cells, (batch, *cells.shape[1:]), "an entry for each row"
        )
    exists = (cells != -1).any(2)
    upper = torch.tensor(list(shape), device=device)
    wrong = ((cells < 0) | (cells >= upper)).any(2) & exists
    if bool(wrong.any()):
        row, at = wrong.nonzero()[0].tolist()
        indices = cells[row, at].tolist()
        raise ValueError(
            f"{argument}: expected a cell of {tuple(shape)}, or -1 for none, got "
            f"{tuple(indices)} at row {row}, entry {at}"
        )
    # row-major, the order in which costs are flattened
    flat = torch.zeros(cells.shape[:2], dtype=torch.int64, device=device)
    for axis, size in enumerate(shape):
        flat = flat * size + cells[..., axis].clamp(min=0)
    return flat, exists


def _pair_shared_cells(
    i: int,
    cells: Any,
    structures: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    batch: int,
    offsets: Mapping[str, int],
) -> tuple[Tensor, Tensor]:
    """Pairs of cells ``(batch, k)`` that are one variable.

    Entries without a cell pair cell 0 with itself, which changes nothing.
    """
    (a, argument_a, flat_a, exists_a), (b, argument_b, flat_b, exists_b) = cells
    if flat_a.shape[1] != flat_b.shape[1]:
        raise ValueError(
            f"{argument_b}: expected the number of cells for {a!r}, {flat_a.shape[1]}, "
            f"got {flat_b.shape[1]}"
        )
    flat_a, exists_a, flat_b, exists_b = (
        x.expand(batch, -1) for x in (flat_a, exists_a, flat_b, exists_b)
    )
    if not torch.equal(exists_a, exists_b):
        row, entry = (exists_a != exists_b).nonzero()[0].tolist()
        raise ValueError(
            f"{argument_b}: expected -1 where the index of {a!r} has it, got a cell "
            f"and -1 at row {row}, entry {entry}"
        )
    # padding in both structures is skipped; padding in one of them is an error
    real = []
    for name, flat in ((a, flat_a), (b, flat_b)):
        usable = usable_cells(structures[name], shapes[name])
        real.append(exists_a if usable is None else usable.gather(1, flat) & exists_a)
    is_mismatch = (real[0] != real[1]) & exists_a
    if bool(is_mismatch.any()):
        row, entry = is_mismatch.nonzero()[0].tolist()
        argument, other = (
            (argument_b, a) if bool(real[0][row, entry]) else (argument_a, b)
        )
        raise ValueError(
            f"{argument}: expected cells that outputs can use, got padding at row "
            f"{row}, entry {entry}, for a real cell of {other!r}; write -1 there in an "
            "index for each row, (batch, k, ...)"
        )
    offset_pair = flat_a.new_tensor([offsets[a], offsets[b]])
    pair = flat_a + offset_pair[0], flat_b + offset_pair[1]
    is_shared = real[0] & real[1]
    zero = torch.zeros_like(flat_a)
    return torch.where(is_shared, pair[0], zero), torch.where(is_shared, pair[1], zero)


def usable_cells(structure: Any, shape: Sequence[int]) -> Tensor | None:
    """Return False for padding, ``(batch, cells)``; None if padding is unknown."""
    mask = getattr(structure, "mask", None)
    potentials = getattr(structure, "_first_potentials", None)
    if potentials is None:
        return None
    usable = structure._usable_parts(structure._first_name)
    if usable is None and isinstance(mask, Tensor) and potentials.dim() == 3:
        usable = mask.unsqueeze(-1)
    return None if usable is None else usable.expand_as(potentials).flatten(1)


def _require_distinct_variables(
    variables: Variables, shapes: Mapping[str, Sequence[int]]
) -> None:
    """Raise ValueError if two cells of one structure are the same variable."""
    offset = 0
    for name, size in zip(shapes, variables.sizes, strict=True):
        cell_variables = variables.variable_of_cell[:, offset : offset + size]
        # equal variables are neighbours after sorting; a stable order names the first
        ranked, order = cell_variables.sort(dim=1, stable=True)
        repeats = (ranked[:, 1:] == ranked[:, :-1]).nonzero()
        if len(repeats):
            row, rank = repeats[0].tolist()
            cells = [
                tuple(int(x) for x in torch.unravel_index(order[row, j], shapes[name]))
                for j in (rank, rank + 1)
            ]
            raise ValueError(
                f"shared: expected each cell of {name!r} to be another variable, got "
                f"cells {cells[0]} and {cells[1]} as one at row {row}"
            )
        offset += size
