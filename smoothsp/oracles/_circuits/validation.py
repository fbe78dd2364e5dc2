"""Checks of inputs and outputs of circuit structures, with messages."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.circuits.cpu import validation
from smoothsp.oracles._circuits import compiled
from smoothsp.oracles._circuits.query import Query
from smoothsp.oracles._circuits.topology import Topology
from smoothsp.oracles._questions import numbers
from smoothsp.oracles._questions.registration import is_dense_cpu, is_eager

if TYPE_CHECKING:
    from smoothsp.oracles._circuits.structure import CircuitStructure


def parts_read(query: Query) -> Tensor:
    """Whether a row may use a leaf at all: ``[B, P + Q]``, ``[1, P + Q]`` if alike."""
    return _reads(query)[0]


def labels_read(query: Query) -> Tensor:
    """Whether such a leaf sets a label, ``[B, N]``, or ``[1, N]`` if rows are alike."""
    return _reads(query)[1]


def _reads(query: Query) -> tuple[Tensor, Tensor]:
    if not query.alike:
        return _find_reads(query.topology, query.rows.roots)
    kept = query.topology.reads
    root = int(query.rows.roots[0]) if len(query.roots) else 0
    if root not in kept:
        kept[root] = _find_reads(query.topology, np.array([root]))
    return kept[root]


def _find_reads(topology: Topology, roots: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    # of constants, also where a transform is under way
    with torch._C._DisableFuncTorch():
        read = np.empty((len(roots), topology.leaves), np.bool_)
        validation.reading(topology.edges_at, roots, read)
        positions = torch.from_numpy(topology.edges.positions[1:]).long()
        reads = torch.from_numpy(read)
        counts = reads.new_zeros((len(roots), topology.labels + 1), dtype=torch.int32)
        return reads, counts.index_add(1, positions + 1, reads.int())[:, 1:] > 0


def validate(
    structure: "CircuitStructure",
    blame: str,
    only: str | None = None,
    changed: Tensor | None = None,
) -> None:
    """Look at the numbers: see that they are scores, and an output for every row.

    What forbids becomes -inf, and so does what is no score where no row reads it.

    Parameters
    ----------
    structure
        Whose potentials.
    blame
        The argument to name.
    only
        The potentials that are new, all if absent.
    changed
        Numbers of which some forbid if -inf among the potentials is new.
    """
    if not is_eager():
        return
    barred = not structure._query.possible
    new: dict[str, Tensor] = {}
    for name, x in (*structure._own.items(), *structure._common.items()):
        if only is not None and name != only:
            continue
        found = numbers.look(x)
        if not found:
            continue
        if found & numbers.WRONG:
            _refuse_wrong(
                structure, name, x, name if blame in structure._own else blame
            )
            new[name] = torch.where(numbers.wrong(x), -torch.inf, numbers.masked(x))
        elif found & numbers.LOW:
            new[name] = numbers.masked(x)
        if found & numbers.FORBIDDEN and not barred:
            new_ones = found if changed is None else numbers.look(changed)
            if (new_ones & numbers.FORBIDDEN) or (found & numbers.LOW):
                barred = structure.may_be_infeasible(name)
    if new:
        own, shared = structure._own, structure._common
        structure._hold(
            {name: new.get(name, x) for name, x in own.items()},
            {name: new.get(name, x) for name, x in shared.items()},
        )
    if barred:
        _refuse_infeasible(structure, blame)


def _refuse_wrong(
    structure: "CircuitStructure", name: str, x: Tensor, blame: str
) -> None:
    read = parts_read(structure._query).to(x.device)
    if name in structure._own:
        reads = compiled.split(read.expand(len(x), -1).double(), structure._leaves())
        counts = structure._of_leaves(reads, name)
    else:
        first = structure._query.edges.own
        for key, other in structure._common.items():
            if key == name:
                break
            first += other.numel()
        counts = read[:, first : first + x.numel()].any(0).reshape(x.shape)
    wrong = (counts > 0) & numbers.wrong(x)
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        where = f"row {place[0]}, " if name in structure._own else ""
        rest = place[1:] if name in structure._own else place
        value = x[tuple(place)].item()
        raise ValueError(numbers.refusal(blame, value, f"{where}entry {rest}"))


def _refuse_infeasible(structure: "CircuitStructure", blame: str) -> None:
    leaves = structure._leaves()
    if not is_dense_cpu(leaves.own[0]):
        leaves = leaves.map(lambda x: x.detach().cpu())
    row = compiled.impossible(leaves, structure._query)
    if row >= 0:
        raise ValueError(
            f"{blame}: row {row} has no feasible output: all use a forbidden part "
            "(-inf), or none has this size; allow at least one"
        )


def check_outputs(structure: "CircuitStructure", y: Tensor, used: Tensor) -> None:
    """Check that outputs consist of the leaves ``[B, K, U]`` that they use."""
    if not is_eager() or not used.numel():
        return
    found = compiled.exist(structure._query, used.cpu())
    if not found.all():
        b, k = divmod(int(found.argmin()), found.shape[1])
        row = (y[b, k] if y.dim() > 1 + len(structure.shape) else y[b]).tolist()
        words = structure.output_description
        raise ValueError(f"y: expected {words}, got {row} at row {b}")
