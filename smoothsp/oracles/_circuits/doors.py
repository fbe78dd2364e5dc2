"""What a circuit structure refuses at the door and in answers, and in which words."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.circuits.cpu import faults
from smoothsp.oracles._circuits import compiled
from smoothsp.oracles._circuits.asked import Asked
from smoothsp.oracles._circuits.topology import Topology
from smoothsp.oracles._questions.registration import is_plain, nothing_traces

if TYPE_CHECKING:
    from smoothsp.oracles._circuits.structure import CircuitStructure


def parts_read(asked: Asked) -> Tensor:
    """Whether a row may use a leaf at all: ``[B, P + Q]``, ``[1, P + Q]`` if alike."""
    return _reads(asked)[0]


def labels_read(asked: Asked) -> Tensor:
    """Whether such a leaf sets a label, ``[B, N]``, or ``[1, N]`` if rows are alike."""
    return _reads(asked)[1]


def _reads(asked: Asked) -> tuple[Tensor, Tensor]:
    if not asked.alike:
        return _find_reads(asked.topology, asked.rows.roots)
    kept = asked.topology.reads
    root = int(asked.rows.roots[0]) if len(asked.roots) else 0
    if root not in kept:
        kept[root] = _find_reads(asked.topology, np.array([root]))
    return kept[root]


def _find_reads(topology: Topology, roots: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    # of constants, also where a transform is under way
    with torch._C._DisableFuncTorch():
        read = np.empty((len(roots), topology.leaves), np.bool_)
        faults.reading(topology.edges_at, roots, read)
        positions = torch.from_numpy(topology.edges.positions[1:]).long()
        reads = torch.from_numpy(read)
        counts = reads.new_zeros((len(roots), topology.labels + 1), dtype=torch.int32)
        return reads, counts.index_add(1, positions + 1, reads.int())[:, 1:] > 0


def check_values(
    structure: "CircuitStructure", blame: str, only: str | None = None
) -> None:
    """No NaN and no +inf where a row reads, and an output for every row.

    Parameters
    ----------
    structure
        Whose potentials.
    blame
        The argument to name.
    only
        The potentials that are new, all if absent.
    """
    if not nothing_traces():
        return
    every = 0
    limit = _largest_summand(structure)
    for name, x in (*structure._own.items(), *structure._common.items()):
        if only is None or name == only:
            found = _extremes(x, limit)
            if found & faults.FORBIDDEN and not structure._may_be_infeasible(name):
                found -= faults.FORBIDDEN
            every |= found
            if found & faults.WRONG:
                _refuse_wrong(structure, name, x, name if only is None else blame)
    if only is None and is_plain(structure._main):
        structure._has_large = bool(every & faults.LARGE)
    if every & faults.FORBIDDEN or not structure._asked.possible:
        _refuse_infeasible(structure, blame)


def _extremes(x: Tensor, limit: float) -> int:
    """What is among the numbers, as ``faults.extremes`` says it."""
    if x.is_cpu:
        x = x if x.is_contiguous() else x.contiguous()
        vector = compiled.VECTORS[x.dtype]
        found: int = faults.extremes(x.data_ptr(), x.numel(), limit, vector)
        return found
    # on a device nobody asks whether some are large
    wrong = bool(~(x < torch.inf).all())
    return faults.WRONG * wrong | faults.FORBIDDEN * bool((x == -torch.inf).any())


def _largest_summand(structure: "CircuitStructure") -> float:
    """So large that the scores of one output may add up to an eighth of the range."""
    parts = max(structure._asked.topology.most, 1)
    return compiled.LARGEST[structure._main.dtype] / 8 / parts


def _refuse_wrong(
    structure: "CircuitStructure", name: str, x: Tensor, blame: str
) -> None:
    read = parts_read(structure._asked).to(x.device)
    if name in structure._own:
        numbers = compiled.split(read.expand(len(x), -1).double(), structure._leaves())
        counts = structure._of_leaves(numbers, name)
    else:
        first = structure._asked.edges.own
        for key, other in structure._common.items():
            if key == name:
                break
            first += other.numel()
        counts = read[:, first : first + x.numel()].any(0).reshape(x.shape)
    wrong = (counts > 0) & ~(x < torch.inf)
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        where = f"row {place[0]}, " if name in structure._own else ""
        rest = place[1:] if name in structure._own else place
        raise ValueError(
            f"{blame}: expected no NaN and no +inf, got {x[tuple(place)].item()} at "
            f"{where}entry {rest}; potentials must be finite, or -inf to forbid"
        )


def _refuse_infeasible(structure: "CircuitStructure", blame: str) -> None:
    leaves = structure._leaves().map(lambda x: x.detach().cpu())
    possible = compiled.possible(leaves, structure._asked)
    if not possible.all():
        raise ValueError(
            f"{blame}: row {int(possible.argmin())} has no feasible output: every one "
            "uses a part that is forbidden (-inf), or none has this size; allow one"
        )


def check_outputs(structure: "CircuitStructure", y: Tensor, used: Tensor) -> None:
    """Each of the outputs can be made of the leaves ``[B, K, U]`` that it uses."""
    if not nothing_traces() or not used.numel():
        return
    found = compiled.exist(structure._asked, used.cpu())
    if not found.all():
        b, k = divmod(int(found.argmin()), found.shape[1])
        row = (y[b, k] if y.dim() > 1 + len(structure.shape) else y[b]).tolist()
        words = structure._output_words
        raise ValueError(f"y: expected {words}, got {row} at row {b}")


def has_large(structure: "CircuitStructure") -> bool:
    """Whether positive scores of one output may add up beyond an eighth of the range.

    Then sums are taken in float64. Large negative ones alone are no such case: where
    they leave the range, any other output is ahead.
    """
    if not is_plain(structure._main):
        return False
    potentials = [*structure._own.values(), *structure._common.values()]
    limit = _largest_summand(structure)
    return any(_extremes(x, limit) & faults.LARGE for x in potentials)


def all_finite(x: Tensor) -> bool:
    """Whether there are only finite numbers; True of what is traced, or on a device."""
    return not is_plain(x) or not _extremes(x, torch.inf)


def held(value: Tensor, structure: "CircuitStructure", what: str) -> Tensor:
    """The float64 value in the dtype of the structure, which has to have room for it.

    Its infinities are refused too: no row without an output gets here.
    """
    found = value.to(structure._main.dtype)
    if not all_finite(found):
        refuse(found, structure, what)
    return found


def refuse(found: Tensor, structure: "CircuitStructure", what: str) -> None:
    """An error that names the largest of the potentials."""
    dtype = structure._main.dtype
    sizes = {}
    for name, x in (*structure._own.items(), *structure._common.items()):
        finite = x.detach().abs().nan_to_num(0, posinf=0)
        sizes[name] = float(finite.amax()) if x.numel() else 0.0
    name = max(sizes, key=lambda name: sizes[name])
    row = int((~found.isfinite()).nonzero()[0, 0])
    instead = ", or use float64" if dtype == torch.float32 else ""
    raise ValueError(
        f"{name}: expected scores so small that {dtype} has room for {what}, got "
        f"entries of up to {sizes[name]:.3g}, and a sum beyond "
        f"{torch.finfo(dtype).max:.3g} in row {row}; scale the scores down, forbid "
        f"with -inf{instead}"
    )
