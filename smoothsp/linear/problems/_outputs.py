"""Gold outputs of all examples, as flat integers."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.linear.problems.potentials import compute_padded_layout

Ints = NDArray[np.int64]
# Where an output has no label.
_NONE = -1


class Outputs(NamedTuple):
    """Outputs one after the other: that of example i has the shape ``shapes[i]``."""

    flat: Ints
    shapes: Ints

    @classmethod
    def of(cls, y: Any, n: int) -> "Outputs":
        """Copies of a list of outputs, or of an array of them."""
        if isinstance(y, Tensor):
            y = y.detach().cpu().numpy()
        if isinstance(y, str) or not hasattr(y, "__len__"):
            raise TypeError(f"y: expected a list of outputs, got {type(y).__name__}")
        if len(y) != n:
            raise ValueError(f"y: expected an output for each of {n} examples, got"
                             f" {len(y)}")  # fmt: skip
        found: list[NDArray[Any]] = []
        for i, output in enumerate(y):
            one = np.asarray(output)
            if one.size and one.dtype.kind not in "iu":
                raise TypeError(f"y: expected integers, got {one.dtype} at example {i}")
            if one.ndim != found[0].ndim if found else False:
                raise ValueError(
                    f"y: expected outputs of {found[0].ndim} axes, as the first has,"
                    f" got {one.ndim} at example {i}"
                )
            found.append(one)
        axes = found[0].ndim
        shapes = np.array([one.shape for one in found], np.int64).reshape(n, axes)
        flat = np.concatenate([one.ravel() for one in found])
        return cls(flat.astype(np.int64), shapes)

    @property
    def _starts(self) -> Ints:
        counts = self.shapes.prod(1)
        return np.asarray(np.concatenate([[0], counts.cumsum()]))

    def padded(self, chosen: Ints, structure: Any) -> Tensor:
        """``(batch, ...)`` of some examples as their structure takes it, else -1."""
        least = structure.shape if hasattr(structure, "output_shapes") else ()
        shape, at = compute_padded_layout(self.shapes[chosen], least)
        found = np.full(int(np.prod(shape)), _NONE)
        found[at] = self.take(chosen).flat
        return torch.from_numpy(found.reshape(shape))

    def take(self, chosen: Ints) -> "Outputs":
        """Outputs of the given examples, in order."""
        starts, counts = self._starts[chosen], self.shapes[chosen].prod(1)
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return Outputs(
            self.flat[np.repeat(starts, counts) + within], self.shapes[chosen]
        )

    def fitted(self, said: list[Ints]) -> "Outputs":
        """Outputs without padding of -1, in the shapes of their structures."""
        shapes = np.concatenate(said) if said else self.shapes
        if shapes.shape != self.shapes.shape or (shapes == self.shapes).all():
            return self
        found = []
        for i, (shape, given) in enumerate(zip(shapes, self.shapes, strict=True)):
            y = self.take(np.array([i])).flat.reshape(given)
            inside = y[tuple(slice(size) for size in shape)]
            if (given < shape).any() or (y != _NONE).sum() > (inside != _NONE).sum():
                raise ValueError(
                    f"y: expected an output of shape {tuple(shape.tolist())}, beyond"
                    f" which all is {_NONE}, got one of {tuple(given.tolist())} at"
                    f" example {i}"
                )
            found.append(inside.ravel())
        return Outputs(np.concatenate(found), shapes)

    def cut(self, outputs: Tensor, chosen: Ints) -> list[Ints]:
        """Outputs ``(batch, ...)`` of some examples in the shapes of the gold ones."""
        return cut(outputs, self.shapes[chosen])


def cut(outputs: Tensor, shapes: Ints) -> list[Ints]:
    """Each of the outputs ``(batch, ...)`` in its shape, without its padding."""
    return [
        y[tuple(slice(size) for size in shape)].copy()
        for y, shape in zip(outputs.numpy(), shapes, strict=True)
    ]


def declared_output_shapes(structure: Any) -> Ints | None:
    """``(batch, axis)``: of a structure's outputs without padding, if it tells them."""
    if not hasattr(structure, "output_shapes"):
        return None
    return np.asarray(structure.output_shapes.numpy())


def compute_output_shapes(structure: Any, outputs: Tensor) -> Ints:
    """``(batch, axis)``: the shapes of a structure's outputs without their padding.

    A structure that does not tell has as many labels as it says in ``lengths``, along
    the first axis.
    """
    if (said := declared_output_shapes(structure)) is not None:
        return said
    shapes = np.tile(np.array(outputs.shape[1:], np.int64), (len(outputs), 1))
    if shapes.shape[1]:
        shapes[:, 0] = structure.lengths.numpy()
    return shapes
