"""Potentials that are linear in the weights: features of parts, or weights as such."""

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

    Example i has an array of potentials of shape ``shapes[i]``, and a row of features
    for each, the last axis fastest. ``features`` has the rows of all examples, one
    below the other.

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
            Dense arrays ``(*axes, features)``, of as many axes each, or scipy CSR
            matrices ``(parts, features)``, of parts along one axis.
        states
            As of the class.
        """
        if not hasattr(arrays, "__iter__") or isinstance(arrays, str):
            raise TypeError(
                "arrays: expected a list with an array for each example, got"
                f" {type(arrays).__name__}"
            )
        arrays = list(arrays)
        sparse_ones = [sparse.issparse(x) for x in arrays]
        given = [
            x if known else np.asarray(x)
            for x, known in zip(arrays, sparse_ones, strict=True)
        ]
        if not given:
            raise ValueError("arrays: expected at least one example, got none")
        axes, width = given[0].ndim, given[0].shape[-1:]
        for i, x in enumerate(given):
            if x.ndim < 2 or x.ndim != axes or x.shape[-1:] != width:
                raise ValueError(
                    f"arrays: expected {axes} axes of which the last is {width}, at"
                    f" least two, got shape {x.shape} at example {i}"
                )
        shapes = [x.shape[:-1] for x in given]
        if any(sparse_ones):
            rows = _rows.stack_matrices("arrays", given)
        else:
            counts = [math.prod(shape) for shape in shapes]
            pairs = zip(given, counts, strict=True)
            rows = np.concatenate([x.reshape(n, *width) for x, n in pairs])
        flat = [shape[0] for shape in shapes] if axes == 2 else shapes
        return cls(rows, flat, states)


@dataclass(frozen=True)
class Shared:
    """Potentials that all examples share, each of them a weight.

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
    """Examples of which ``build`` makes a structure.

    Attributes
    ----------
    rows
        ``(batch,)`` int64: the numbers of the examples, from 0.
    sizes
        Dict from each kind of :class:`Parts` to the given shapes of these examples,
        ``(batch,)`` or ``(batch, axes)`` int64. Tensors of potentials are padded with
        0.

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
    """Return the structure that ``build`` makes of potentials, checked."""
    found = build(potentials, batch)
    if not hasattr(found, "score") and not hasattr(found, "decode"):
        raise TypeError(
            "build: expected a function that returns a structure, got one that"
            f" returns {type(found).__name__}"
        )
    return found


class PaddedLayout(NamedTuple):
    """Arrays of some examples in one padded tensor.

    ``at`` is where in it the entries stand that the examples have one after the other.
    """

    shape: tuple[int, ...]
    at: Ints


def compute_padded_layout(shapes: Ints, least: tuple[int, ...] = ()) -> PaddedLayout:
    """Places of arrays of these shapes, padded to the largest or more."""
    most = shapes.max(0, initial=0)
    if len(least) == len(most):
        most = np.maximum(most, least)
    counts = shapes.prod(1)
    owner = np.repeat(np.arange(len(shapes)), counts)
    within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    at, stride = np.zeros_like(within), 1
    for axis in range(shapes.shape[1] - 1, -1, -1):
        at += within % shapes[owner, axis] * stride
        within //= shapes[owner, axis]
        stride *= int(most[axis])
    return PaddedLayout((len(shapes), *map(int, most)), at + owner * stride)


def as_shapes(name: str, shapes: Any, n: int | None) -> tuple[Ints, bool]:
    """``(n, axes)``, and whether they were given flat."""
    try:
        found = np.asarray(shapes)
    except ValueError as error:
        raise TypeError(
            f"{name}: expected integers (n,) or (n, axes), got a list of different"
            " lengths"
        ) from error
    if found.ndim not in (1, 2) or (found.size and found.dtype.kind not in "iu"):
        raise TypeError(
            f"{name}: expected integers (n,) or (n, axes), got {found.dtype} of shape"
            f" {found.shape}"
        )
    if n is not None and len(found) != n:
        raise ValueError(f"{name}: expected one for each of {n} examples, got"
                         f" {len(found)}")  # fmt: skip
    if found.size and found.min() < 0:
        raise ValueError(f"{name}: expected at least 0, got {found.min()}")
    flat = found.ndim == 1
    return (found[:, None] if flat else found).astype(np.int64), flat


class PartScores:
    """One kind of parts: from weights to potentials, and from gradients back."""

    def __init__(self, name: str, parts: Parts, n: int | None) -> None:
        self.name = name
        words = f"features[{name!r}]"
        self.rows = _rows.as_rows(f"{words}.features", parts.features)
        self.shapes, self.flat = as_shapes(f"{words}.shapes", parts.shapes, n)
        self.states = parts.states
        if parts.states is not None:
            checks.as_positive_int(f"{words}.states", parts.states)
        self.width = 1 if parts.states is None else int(parts.states)
        self.num_weights = self.rows.columns * self.width
        counts = self.shapes.prod(1)
        self.starts = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
        if self.starts[-1] != len(self.rows.indptr) - 1:
            raise ValueError(
                f"{words}: expected a row of features for each of"
                f" {self.starts[-1]} parts, as shapes say, got"
                f" {len(self.rows.indptr) - 1}"
            )

    def costs(self) -> Ints:
        """``(n,)``: numbers in the potentials of an example."""
        return np.asarray(self.shapes.prod(1) * self.width)

    def sizes(self, chosen: Ints) -> Tensor:
        """The shapes as they were given."""
        found = self.shapes[chosen]
        return torch.from_numpy(found[:, 0].copy() if self.flat else found)

    def _parts(self, chosen: Ints) -> _rows.Rows:
        rows = self.rows
        if len(chosen) and (np.diff(chosen) == 1).all():
            # neighbours: views
            a, b = self.starts[chosen[0]], self.starts[chosen[-1] + 1]
            i, j = rows.indptr[a], rows.indptr[b]
            ends = rows.indptr[a : b + 1] - i
            return _rows.Rows(ends, rows.indices[i:j], rows.values[i:j], rows.columns)
        counts = np.diff(self.starts)[chosen]
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return rows.take(np.repeat(self.starts[chosen], counts) + within)

    def potentials(self, w: Floats, chosen: Ints) -> Tensor:
        """``(batch, *axes)`` and the states, of weights of this kind."""
        shape, at = compute_padded_layout(self.shapes[chosen])
        rows = self._parts(chosen)
        table = w.reshape(self.rows.columns, self.width)
        scores = _matrix(rows) @ table
        found = np.zeros((math.prod(shape), self.width))
        found[at] = scores
        last = () if self.states is None else (self.states,)
        return torch.from_numpy(found.reshape(*shape, *last))

    def add_gradient(self, gradient: Tensor, chosen: Ints, out: Floats) -> None:
        """Add the gradient with respect to the weights to ``out``."""
        _, at = compute_padded_layout(self.shapes[chosen])
        slopes = gradient.numpy().reshape(-1, self.width)[at]
        out += (_matrix(self._parts(chosen)).T @ slopes).ravel()

    def entries(self, gradient: Tensor, chosen: Ints) -> tuple[Ints, Ints, Floats]:
        """Entries of the gradients of examples: example, weight and value."""
        _, at = compute_padded_layout(self.shapes[chosen])
        slopes = gradient.numpy().reshape(-1, self.width)[at]
        part, state = np.nonzero(slopes)
        rows = self._parts(chosen)
        counts = np.diff(self.starts)[chosen]
        owner = np.repeat(np.arange(len(chosen)), counts)[part]
        lengths = np.diff(rows.indptr)[part]
        ends = lengths.cumsum()
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        entry = np.repeat(rows.indptr[part], lengths) + within
        weight = rows.indices[entry].astype(np.int64) * self.width
        weight += np.repeat(state, lengths)
        values = rows.values[entry] * np.repeat(slopes[part, state], lengths)
        return np.repeat(owner, lengths), weight, values

    def subset(self, chosen: Ints) -> "PartScores":
        """Subset of the examples, in the given order."""
        part = object.__new__(PartScores)
        part.__dict__.update(self.__dict__)
        part.rows, part.shapes = self._parts(chosen), self.shapes[chosen]
        counts = part.shapes.prod(1)
        part.starts = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
        return part


class SharedScores:
    """One kind of potentials that are weights."""

    def __init__(self, name: str, shared: Shared) -> None:
        if isinstance(shared.shape, str) or not hasattr(shared.shape, "__iter__"):
            shown = checks.short_repr(shared.shape)
            raise TypeError(
                f"features[{name!r}].shape: expected a tuple of ints, got {shown};"
                " a vector has shape (size,)"
            )
        self.name, self.shape = name, tuple(shared.shape)
        for size in self.shape:
            checks.as_positive_int(f"features[{name!r}].shape", size)
        self.num_weights = math.prod(self.shape)

    def potentials(self, w: Floats, chosen: Ints) -> Tensor:
        """Potentials of weights of this kind, a copy."""
        return torch.from_numpy(w.reshape(self.shape).copy())


PotentialKind = PartScores | SharedScores


def make_potential_kinds(features: Any) -> list[PotentialKind]:
    """The kinds of potentials, checked, in the order in which they were given."""
    if not isinstance(features, Mapping) or not features:
        raise TypeError(
            "features: expected a dict from the names of potentials to Parts or Shared,"
            f" got {type(features).__name__}"
        )
    kinds: list[PotentialKind] = []
    n = None
    for name, given in features.items():
        if isinstance(given, Parts):
            kinds.append(PartScores(name, given, n))
            n = len(kinds[-1].shapes)  # type: ignore[union-attr]
        elif isinstance(given, Shared):
            kinds.append(SharedScores(name, given))
        else:
            raise TypeError(
                f"features[{name!r}]: expected Parts or Shared, got"
                f" {type(given).__name__}"
            )
    if n is None:
        raise ValueError(
            "features: expected Parts of at least one kind, which say how many examples"
            " there are"
        )
    if not n:
        raise ValueError("features: expected at least one example, got none")
    return kinds


def _matrix(rows: _rows.Rows) -> Any:
    shape = (len(rows.indptr) - 1, rows.columns)
    return sparse.csr_matrix((rows.values, rows.indices, rows.indptr), shape=shape)
