"""Potentials of structures, linear in the weights: features of parts, or weights."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from smoothsp.linear.inputs import checks
from smoothsp.linear.problems import _rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Parts:
    """Potentials of one kind: a row of features for each part of each example.

    Example i has an array of potentials of shape ``shapes[i]``, with one row of
    features per potential, the last axis fastest. ``features`` has the rows of all
    examples, concatenated.

    Parameters
    ----------
    features
        ``(parts of all examples, features)``, dense or a scipy sparse matrix. float32
        is kept, everything else becomes float64.
    shapes
        ``(n,)`` or ``(n, axes)`` integers of at least 0. For the positions of a
        sequence use ``(T_i,)``, and for the arcs between m words and a root ``(m_i + 1,
        m_i + 1)``. Use ``()`` if an example is one part.
    states
        Number of states of a part: one more axis, and a block of weights for each. None
        if a part has one score, and the weights are a vector.

    Examples
    --------
    Words with two features and three tags, in sentences of two words and of one:

    >>> import numpy as np
    >>> from smoothsp.linear.problems import Parts
    >>> emissions = Parts(np.eye(3, 2), [2, 1], states=3)
    """

    features: Any
    shapes: Any
    states: int | None = None

    @classmethod
    def of_examples(cls, arrays: Sequence[Any], states: int | None = None) -> "Parts":
        """Create parts from one array per example.

        Parameters
        ----------
        arrays
            Dense arrays ``(*axes, features)`` with equal numbers of axes, or scipy CSR
            matrices ``(parts, features)`` of parts along one axis.
        states
            As of the class.
        """
        if not hasattr(arrays, "__iter__") or isinstance(arrays, str):
            raise TypeError(
                "arrays: expected a list with an array for each example, got"
                f" {type(arrays).__name__}"
            )
        arrays = list(arrays)
        is_sparse = [sparse.issparse(x) for x in arrays]
        matrices = [
            x if is_csr else np.asarray(x)
            for x, is_csr in zip(arrays, is_sparse, strict=True)
        ]
        if not matrices:
            raise ValueError("arrays: expected at least one example, got none")
        num_axes, width = matrices[0].ndim, matrices[0].shape[-1:]
        for i, x in enumerate(matrices):
            if x.ndim < 2 or x.ndim != num_axes or x.shape[-1:] != width:
                raise ValueError(
                    f"arrays: expected {num_axes} axes of which the last is {width}, at"
                    f" least two, got shape {x.shape} at example {i}"
                )
        shapes = [x.shape[:-1] for x in matrices]
        if any(is_sparse):
            rows = _rows.stack_matrices("arrays", matrices)
        else:
            counts = [math.prod(shape) for shape in shapes]
            pairs = zip(matrices, counts, strict=True)
            rows = np.concatenate([x.reshape(n, *width) for x, n in pairs])
        flat_shapes = [shape[0] for shape in shapes] if num_axes == 2 else shapes
        return cls(rows, flat_shapes, states)


@dataclass(frozen=True)
class Shared:
    """Potentials shared by all examples; each potential is a weight.

    Parameters
    ----------
    shape
        Shape of the potentials, ``(S, S)`` for the transitions of a chain.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import Parts, Shared, StructureProblem
    >>> from smoothsp.oracles import Chain
    >>> def chains(potentials, batch):
    ...     return Chain(potentials["emissions"], potentials["transitions"])
    >>> words = Parts(np.eye(4), [[2], [2]], states=3)
    >>> features = {"emissions": words, "transitions": Shared((3, 3))}
    >>> StructureProblem(chains, features, [[0, 1], [2, 0]]).num_weights
    21
    """

    shape: tuple[int, ...]


class Batch(NamedTuple):
    """Examples of one call of ``build``.

    Attributes
    ----------
    rows
        ``(batch,)`` int64: indices of the examples, from 0.
    sizes
        Dict from each kind of :class:`Parts` to the shapes of these examples,
        ``(batch,)`` or ``(batch, axes)`` int64, as in ``shapes``. Tensors of potentials
        are padded with 0.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import Parts, StructureProblem
    >>> from smoothsp.oracles import Chain
    >>> def chains(potentials, batch):
    ...     lengths = batch.sizes["emissions"][:, 0]
    ...     emissions = potentials["emissions"]
    ...     return Chain(emissions, emissions.new_zeros(3, 3), lengths=lengths)
    >>> words = Parts(np.eye(3), [[1], [2]], states=3)
    >>> StructureProblem(chains, {"emissions": words}, [[0], [2, 0]]).num_weights
    9
    """

    rows: Tensor
    sizes: dict[str, Tensor]


def build_structure(build: Any, potentials: dict[str, Tensor], batch: Batch) -> Any:
    """Call ``build`` and check that it returns a structure."""
    structure = build(potentials, batch)
    if not hasattr(structure, "score") and not hasattr(structure, "decode"):
        raise TypeError(
            "build: expected a function that returns a structure, got one that"
            f" returns {type(structure).__name__}"
        )
    return structure


class PaddedLayout(NamedTuple):
    """Layout of ragged arrays in one padded array of ``shape``.

    ``positions`` are the flat indices of the unpadded entries, in order.
    """

    shape: tuple[int, ...]
    positions: Ints


def compute_padded_layout(
    shapes: Ints, min_shape: tuple[int, ...] = ()
) -> PaddedLayout:
    """Layout of arrays of ``shapes``, padded to the largest, or to ``min_shape``."""
    max_shape = shapes.max(0, initial=0)
    if len(min_shape) == len(max_shape):
        max_shape = np.maximum(max_shape, min_shape)
    counts = shapes.prod(1)
    example = np.repeat(np.arange(len(shapes)), counts)
    offset_in_example = np.arange(counts.sum()) - np.repeat(
        counts.cumsum() - counts, counts
    )
    positions, stride = np.zeros_like(offset_in_example), 1
    # from the last axis to the first: the flat index is a mixed-radix number
    for axis in range(shapes.shape[1] - 1, -1, -1):
        positions += offset_in_example % shapes[example, axis] * stride
        offset_in_example //= shapes[example, axis]
        stride *= int(max_shape[axis])
    return PaddedLayout(
        (len(shapes), *map(int, max_shape)), positions + example * stride
    )


def as_shapes(name: str, shapes: Any, num_examples: int | None) -> tuple[Ints, bool]:
    """Return shapes as ``(n, axes)``, and whether the argument was ``(n,)``."""
    try:
        array = np.asarray(shapes)
    except ValueError as error:
        raise TypeError(
            f"{name}: expected integers (n,) or (n, axes), got a list of different"
            " lengths"
        ) from error
    if array.ndim not in (1, 2) or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(
            f"{name}: expected integers (n,) or (n, axes), got {array.dtype} of shape"
            f" {array.shape}"
        )
    if num_examples is not None and len(array) != num_examples:
        raise ValueError(f"{name}: expected one for each of {num_examples} examples,"
                         f" got"
                         f" {len(array)}")  # fmt: skip
    if array.size and array.min() < 0:
        raise ValueError(f"{name}: expected at least 0, got {array.min()}")
    is_flat = array.ndim == 1
    return (array[:, None] if is_flat else array).astype(np.int64), is_flat


class PartScores:
    """Potentials of one ``Parts``: weights to scores, gradients back to weights."""

    def __init__(self, name: str, parts: Parts, num_examples: int | None) -> None:
        self.name = name
        argument = f"features[{name!r}]"
        self.rows = _rows.as_rows(f"{argument}.features", parts.features)
        self.shapes, self.is_flat = as_shapes(
            f"{argument}.shapes", parts.shapes, num_examples
        )
        self.states = parts.states
        if parts.states is not None:
            checks.as_positive_int(f"{argument}.states", parts.states)
        self.width = 1 if parts.states is None else int(parts.states)
        self.num_weights = self.rows.columns * self.width
        counts = self.shapes.prod(1)
        self.part_offsets = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
        if self.part_offsets[-1] != len(self.rows.indptr) - 1:
            raise ValueError(
                f"{argument}: expected a row of features for each of"
                f" {self.part_offsets[-1]} parts in shapes, got"
                f" {len(self.rows.indptr) - 1}"
            )

    def costs(self) -> Ints:
        """``(n,)``: number of potentials of each example."""
        return np.asarray(self.shapes.prod(1) * self.width)

    def sizes(self, example_indices: Ints) -> Tensor:
        """Return the shapes of examples, ``(batch,)`` or ``(batch, axes)`` as given."""
        shapes = self.shapes[example_indices]
        return torch.from_numpy(shapes[:, 0].copy() if self.is_flat else shapes)

    def _select_rows(self, example_indices: Ints) -> _rows.Rows:
        rows = self.rows
        if len(example_indices) and (np.diff(example_indices) == 1).all():
            # consecutive examples: views instead of copies
            first_part, end_part = (
                self.part_offsets[example_indices[0]],
                self.part_offsets[example_indices[-1] + 1],
            )
            first_entry, end_entry = rows.indptr[first_part], rows.indptr[end_part]
            indptr = rows.indptr[first_part : end_part + 1] - first_entry
            return _rows.Rows(
                indptr,
                rows.indices[first_entry:end_entry],
                rows.values[first_entry:end_entry],
                rows.columns,
            )
        counts = np.diff(self.part_offsets)[example_indices]
        offset_in_example = np.arange(counts.sum()) - np.repeat(
            counts.cumsum() - counts, counts
        )
        return rows.select_rows(
            np.repeat(self.part_offsets[example_indices], counts) + offset_in_example
        )

    def potentials(self, w: Floats, example_indices: Ints) -> Tensor:
        """Return padded potentials ``(batch, *axes[, states])`` at weights w."""
        shape, positions = compute_padded_layout(self.shapes[example_indices])
        rows = self._select_rows(example_indices)
        table = w.reshape(self.rows.columns, self.width)
        # product in scipy, without padding: only scores are scattered to the padded
        # tensor
        scores = _as_csr_matrix(rows) @ table
        padded = np.zeros((math.prod(shape), self.width))
        padded[positions] = scores
        state_axes = () if self.states is None else (self.states,)
        return torch.from_numpy(padded.reshape(*shape, *state_axes))

    def add_gradient(
        self, gradient: Tensor, example_indices: Ints, out: Floats
    ) -> None:
        """Add ``features.T @ gradient``, the gradient in the weights, to ``out``."""
        _, positions = compute_padded_layout(self.shapes[example_indices])
        part_gradients = gradient.numpy().reshape(-1, self.width)[positions]
        out += (
            _as_csr_matrix(self._select_rows(example_indices)).T @ part_gradients
        ).ravel()

    def entries(
        self, gradient: Tensor, example_indices: Ints
    ) -> tuple[Ints, Ints, Floats]:
        """Return gradients of examples as sparse (example, weight, value) entries."""
        _, positions = compute_padded_layout(self.shapes[example_indices])
        part_gradients = gradient.numpy().reshape(-1, self.width)[positions]
        # duplicates stay separate entries: SparseVector.from_entries sums them
        part, state = np.nonzero(part_gradients)
        rows = self._select_rows(example_indices)
        counts = np.diff(self.part_offsets)[example_indices]
        example = np.repeat(np.arange(len(example_indices)), counts)[part]
        lengths = np.diff(rows.indptr)[part]
        entry_ends = lengths.cumsum()
        offset_in_row = np.arange(lengths.sum()) - np.repeat(
            entry_ends - lengths, lengths
        )
        entry = np.repeat(rows.indptr[part], lengths) + offset_in_row
        weight = rows.indices[entry].astype(np.int64) * self.width
        weight += np.repeat(state, lengths)
        values = rows.values[entry] * np.repeat(part_gradients[part, state], lengths)
        return np.repeat(example, lengths), weight, values

    def subset(self, example_indices: Ints) -> "PartScores":
        """Return the scores of the examples ``example_indices``, in that order."""
        scores = object.__new__(PartScores)
        scores.__dict__.update(self.__dict__)
        scores.rows, scores.shapes = (
            self._select_rows(example_indices),
            self.shapes[example_indices],
        )
        counts = scores.shapes.prod(1)
        scores.part_offsets = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
        return scores


class SharedScores:
    """Potentials of one ``Shared``: the weights themselves."""

    def __init__(self, name: str, shared: Shared) -> None:
        if isinstance(shared.shape, str) or not hasattr(shared.shape, "__iter__"):
            text = checks.short_repr(shared.shape)
            raise TypeError(
                f"features[{name!r}].shape: expected a tuple of ints, got {text};"
                " a vector has shape (size,)"
            )
        self.name, self.shape = name, tuple(shared.shape)
        for size in self.shape:
            checks.as_positive_int(f"features[{name!r}].shape", size)
        self.num_weights = math.prod(self.shape)

    def potentials(self, w: Floats, example_indices: Ints) -> Tensor:
        """Return a copy of the weights in the shape of the potentials."""
        return torch.from_numpy(w.reshape(self.shape).copy())


PotentialKind = PartScores | SharedScores


def make_potential_kinds(features: Any) -> list[PotentialKind]:
    """Validate the dict of features; return its potentials in the order of w."""
    if not isinstance(features, Mapping) or not features:
        raise TypeError(
            "features: expected a dict from the names of potentials to Parts or Shared,"
            f" got {type(features).__name__}"
        )
    kinds: list[PotentialKind] = []
    num_examples = None
    for name, declaration in features.items():
        if isinstance(declaration, Parts):
            kinds.append(PartScores(name, declaration, num_examples))
            num_examples = len(kinds[-1].shapes)  # type: ignore[union-attr]
        elif isinstance(declaration, Shared):
            kinds.append(SharedScores(name, declaration))
        else:
            raise TypeError(
                f"features[{name!r}]: expected Parts or Shared, got"
                f" {type(declaration).__name__}"
            )
    if num_examples is None:
        raise ValueError(
            "features: expected Parts of at least one kind, which determine the number"
            " of examples"
        )
    if not num_examples:
        raise ValueError("features: expected at least one example, got none")
    return kinds


def _as_csr_matrix(rows: _rows.Rows) -> Any:
    """Return rows as a scipy matrix that shares their arrays."""
    shape = (len(rows.indptr) - 1, rows.columns)
    return sparse.csr_matrix((rows.values, rows.indices, rows.indptr), shape=shape)
