"""Gold outputs of all examples, as flat integers."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.linear.problems.potentials import placed

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

    def padded(self, chosen: Ints) -> Tensor:
        """``(batch, ...)`` of some examples, -1 beyond them."""
        shape, at = placed(self.shapes[chosen])
        found = np.full(int(np.prod(shape)), _NONE)
        found[at] = self.take(chosen).flat
        return torch.from_numpy(found.reshape(shape))

    def take(self, chosen: Ints) -> "Outputs":
        """Those of some examples, in that order."""
        starts, counts = self._starts[chosen], self.shapes[chosen].prod(1)
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return Outputs(
            self.flat[np.repeat(starts, counts) + within], self.shapes[chosen]
        )

    def cut(self, outputs: Tensor, chosen: Ints) -> list[Ints]:
        """Outputs ``(batch, ...)`` of some examples in the shapes of the gold ones."""
        return [
            np.ascontiguousarray(y[tuple(slice(size) for size in shape)])
            for y, shape in zip(outputs.numpy(), self.shapes[chosen], strict=True)
        ]
