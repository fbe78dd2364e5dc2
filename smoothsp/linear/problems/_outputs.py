"""Gold outputs of all examples: ragged integer arrays in one flat array."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.linear.problems.potentials import compute_padded_layout

Ints = NDArray[np.int64]
# Label of padded positions.
_PADDING_LABEL = -1


class Outputs(NamedTuple):
    """Concatenated outputs: that of example i has shape ``shapes[i]``, C order."""

    flat: Ints
    shapes: Ints

    @classmethod
    def from_list(cls, y: Any, num_examples: int) -> "Outputs":
        """Copy a list of outputs, or an array ``(n, ...)``, and validate it."""
        if isinstance(y, Tensor):
            y = y.detach().cpu().numpy()
        if isinstance(y, str) or not hasattr(y, "__len__"):
            raise TypeError(f"y: expected a list of outputs, got {type(y).__name__}")
        if len(y) != num_examples:
            raise ValueError(f"y: expected an output for each of {num_examples}"
                             f" examples, got"
                             f" {len(y)}")  # fmt: skip
        outputs: list[NDArray[Any]] = []
        for i, output in enumerate(y):
            array = np.asarray(output)
            if array.size and array.dtype.kind not in "iu":
                raise TypeError(
                    f"y: expected integers, got {array.dtype} at example {i}"
                )
            if array.ndim != outputs[0].ndim if outputs else False:
                raise ValueError(
                    f"y: expected outputs of {outputs[0].ndim} axes, as the first has,"
                    f" got {array.ndim} at example {i}"
                )
            outputs.append(array)
        num_axes = outputs[0].ndim
        shapes = np.array([array.shape for array in outputs], np.int64).reshape(
            num_examples, num_axes
        )
        flat = np.concatenate([array.ravel() for array in outputs])
        return cls(flat.astype(np.int64), shapes)

    @property
    def _offsets(self) -> Ints:
        counts = self.shapes.prod(1)
        return np.asarray(np.concatenate([[0], counts.cumsum()]))

    def pad(self, example_indices: Ints, structure: Any) -> Tensor:
        """Return outputs ``(batch, ...)`` padded with -1 to the structure's shape."""
        min_shape = structure.shape if hasattr(structure, "output_shapes") else ()
        shape, positions = compute_padded_layout(
            self.shapes[example_indices], min_shape
        )
        flat_padded = np.full(int(np.prod(shape)), _PADDING_LABEL)
        flat_padded[positions] = self.select(example_indices).flat
        return torch.from_numpy(flat_padded.reshape(shape))

    def select(self, example_indices: Ints) -> "Outputs":
        """Return the outputs of ``example_indices``, in that order."""
        starts, counts = (
            self._offsets[example_indices],
            self.shapes[example_indices].prod(1),
        )
        offset_in_output = np.arange(counts.sum()) - np.repeat(
            counts.cumsum() - counts, counts
        )
        return Outputs(
            self.flat[np.repeat(starts, counts) + offset_in_output],
            self.shapes[example_indices],
        )

    def trim_padding(self, declared_shapes: list[Ints]) -> "Outputs":
        """Return the outputs cut to the shapes that their structures declare."""
        shapes = np.concatenate(declared_shapes) if declared_shapes else self.shapes
        if shapes.shape != self.shapes.shape or (shapes == self.shapes).all():
            return self
        trimmed = []
        for i, (shape, padded_shape) in enumerate(
            zip(shapes, self.shapes, strict=True)
        ):
            output = self.select(np.array([i])).flat.reshape(padded_shape)
            inside = output[tuple(slice(size) for size in shape)]
            if (padded_shape < shape).any() or (output != _PADDING_LABEL).sum() > (
                inside != _PADDING_LABEL
            ).sum():
                raise ValueError(
                    f"y: expected an output of shape {tuple(shape.tolist())}, beyond"
                    f" which all is {_PADDING_LABEL}, got one of"
                    f" {tuple(padded_shape.tolist())} at"
                    f" example {i}"
                )
            trimmed.append(inside.ravel())
        return Outputs(np.concatenate(trimmed), shapes)

    def unpad(self, outputs: Tensor, example_indices: Ints) -> list[Ints]:
        """Cut outputs ``(batch, ...)`` to the shapes of the gold outputs."""
        return unpad(outputs, self.shapes[example_indices])


def unpad(outputs: Tensor, shapes: Ints) -> list[Ints]:
    """Cut each output of ``(batch, ...)`` to its shape ``shapes[i]``; copies."""
    return [
        y[tuple(slice(size) for size in shape)].copy()
        for y, shape in zip(outputs.numpy(), shapes, strict=True)
    ]


def declared_output_shapes(structure: Any) -> Ints | None:
    """``(batch, axis)``: shapes without padding, or None if not declared."""
    if not hasattr(structure, "output_shapes"):
        return None
    return np.asarray(structure.output_shapes.numpy())


def compute_output_shapes(structure: Any, outputs: Tensor) -> Ints:
    """``(batch, axis)``: shapes of a structure's outputs without padding.

    Structures without ``output_shapes`` have ``lengths[i]`` labels along the first
    axis.
    """
    if (declared := declared_output_shapes(structure)) is not None:
        return declared
    shapes = np.tile(np.array(outputs.shape[1:], np.int64), (len(outputs), 1))
    if shapes.shape[1]:
        shapes[:, 0] = structure.lengths.numpy()
    return shapes
