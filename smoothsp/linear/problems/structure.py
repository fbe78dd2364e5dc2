"""Linear structured SVMs and CRFs over any differentiable structure."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.vectors import LazyCombination, SparseVector
from smoothsp.linear.problems import _rows
from smoothsp.linear.problems._outputs import (
    Outputs,
    compute_output_shapes,
    declared_output_shapes,
    unpad,
)
from smoothsp.linear.problems._structure_sums import (
    StructureRiskMixin,
    compute_costs,
    compute_gradients,
    require_valid_costs,
)
from smoothsp.linear.problems.batch import ValueAndGradient
from smoothsp.linear.problems.callback import Corner
from smoothsp.linear.problems.potentials import (
    Batch,
    PartScores,
    build_structure,
    make_potential_kinds,
)
from smoothsp.losses import L2, Entropy, functional

Weights = NDArray[np.float64]
Ints = NDArray[np.int64]
Tangent = tuple[float, Weights, float]
Build = Callable[[dict[str, Tensor], Batch], Any]

# Maximum number of padded potentials in a chunk of examples: 4 MB of float64.
_MAX_CHUNK_SIZE = 2**19


class _PreparedBatch(NamedTuple):
    """Examples with their potentials (leaf tensors), structure and gold outputs."""

    example_indices: Ints
    potentials: list[Tensor]
    structure: Any
    y: Tensor


class StructureProblem(StructureRiskMixin):
    r"""A linear structured SVM, or a CRF, over any structure.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2 + \tfrac{1}{n} \sum_i
        \max_y L_i(y) + \langle w, \phi_i(y) - \phi_i(y_i) \rangle

    Potentials are linear in the weights: products of weights with features of parts, or
    the weights themselves. You can use any structure of ``smoothsp.oracles``, or your
    own. The features ``phi`` of an output are the gradient of ``score(y)`` in the
    weights. Features stay sparse. A structure holds many examples at once if the solver
    processes them in batches.

    Parameters
    ----------
    build
        Function ``build(potentials, batch)`` that returns a structure of some examples.
        ``potentials`` is a dict of float64 tensors with the names in ``features``,
        padded to the largest of these examples. ``batch`` is a :class:`Batch` with the
        size of each example. Scores must be linear in the potentials: potentials that
        are all 0 must give scores of 0 or ``-inf``.
    features
        A dict from the names of potentials to :class:`Parts`, which have features, or
        :class:`Shared`, which are weights. w has the order of the dict.
    y
        A list with the gold output of each example, integers in the shape of the
        structure's outputs; or one array ``(n, ...)``, padded with -1. None if the
        examples are only to be decoded.
    cost
        ``"hamming"`` for ``hamming(y)`` of the structure, 1 for a wrong label. Or a
        function ``cost(structure, y)`` that returns a tensor in the shape that
        ``augment`` takes, at least 0, and 0 for all parts of y.
    cost_scale
        ``(n,)``, positive: factor of the cost of an example, by default 1.

    Raises
    ------
    ValueError
        For inconsistent shapes, values or outputs; the message names the place.
    TypeError
        If features are not matrices of numbers, outputs not integers, or ``build`` not
        a function.

    Notes
    -----
    w is one flat float64 vector with the weights of each kind of potentials. Weights of
    parts with states are in the order ``(features, states)``.

    Losses need the same methods of a structure as in ``smoothsp.losses``. ``"hinge"``
    needs ``hamming``, ``augment``, ``decode`` and ``score``; the others need
    ``decode_topk``, or ``scale`` and ``log_partition``. :class:`ChainProblem` does the
    same for chains in compiled loops.

    Source: Taskar, Guestrin and Koller, "Max-Margin Markov Networks" (2003), for
    features of parts.

    Examples
    --------
    Dependency trees of two sentences, from features of arcs:

    >>> import numpy as np
    >>> from smoothsp.linear.problems import Parts, StructureProblem
    >>> from smoothsp.oracles import ProjectiveDependencies
    >>> def trees(potentials, batch):
    ...     words = batch.sizes["arcs"][:, 0] - 1
    ...     return ProjectiveDependencies(potentials["arcs"], lengths=words)
    >>> features = np.random.default_rng(0).normal(size=(3 * 3 + 2 * 2, 5))
    >>> arcs = Parts(features, [[3, 3], [2, 2]])
    >>> problem = StructureProblem(trees, {"arcs": arcs}, [[2, 0], [0]])
    >>> len(problem), problem.num_weights, problem.primal(np.zeros(5), lam=1.0)
    (2, 5, 1.0)
    """

    # name of the features in messages
    called = "features"
    # psi of corners are CSR matrices
    sparse = True

    def __init__(
        self,
        build: Build,
        features: Any,
        y: Any = None,
        *,
        cost: Any = "hamming",
        cost_scale: Any = None,
    ) -> None:
        if not callable(build):
            raise TypeError(f"build: expected a function, got {build!r}")
        if not callable(cost) and not (isinstance(cost, str) and cost == "hamming"):
            text = checks.short_repr(cost)
            raise ValueError(f"cost: expected 'hamming' or a function, got {text}")
        self.build, self.cost = build, cost
        self.kinds = make_potential_kinds(features)
        self._part_scores = [
            kind for kind in self.kinds if isinstance(kind, PartScores)
        ]
        num_examples = len(self._part_scores[0].shapes)
        self.cost_scale = _rows.as_cost_scales(cost_scale, num_examples)
        self._outputs = None if y is None else Outputs.from_list(y, num_examples)
        self._weight_offsets = np.cumsum(
            [0, *(kind.num_weights for kind in self.kinds)]
        )
        self.num_weights = int(self._weight_offsets[-1])
        self._all_indices = np.arange(num_examples)
        if y is not None:
            self._validate_outputs()

    def __len__(self) -> int:
        """Number of examples."""
        return len(self._all_indices)

    @cached_property
    def checksum(self) -> int:
        """Checksum of the examples, outputs and costs."""
        outputs = () if self._outputs is None else self._outputs
        hashed_arrays = [self.cost_scale, *outputs]
        for kind in self._part_scores:
            rows = kind.rows
            hashed_arrays += [rows.indptr, rows.indices, rows.values, kind.shapes]
        return arrays.checksum(*hashed_arrays, self._weight_offsets)

    def split(self, w: Weights) -> dict[str, Weights]:
        """Return the weights of each kind of potentials, as views."""
        w = self._check_weights(w)
        weights = {}
        for kind, begin, end in zip(
            self.kinds, self._weight_offsets, self._weight_offsets[1:], strict=False
        ):
            table = w[begin:end]
            if isinstance(kind, PartScores):
                width = () if kind.states is None else (kind.width,)
                weights[kind.name] = table.reshape(kind.rows.columns, *width)
            else:
                weights[kind.name] = table.reshape(kind.shape)
        return weights

    # structures of batches of examples

    def structure(self, w: Weights, rows: Any = None) -> Any:
        """Return the structure of ``rows``, by default all examples, at weights w."""
        example_indices = self._all_indices if rows is None else self._all_indices[rows]
        potentials = self._compute_potentials(self._check_weights(w), example_indices)
        return build_structure(
            self.build, potentials, self._make_batch(example_indices)
        )

    def _make_batch(self, example_indices: Ints) -> Batch:
        sizes = {kind.name: kind.sizes(example_indices) for kind in self._part_scores}
        return Batch(torch.from_numpy(example_indices.copy()), sizes)

    def _compute_potentials(
        self, w: Weights | LazyCombination, example_indices: Ints
    ) -> dict[str, Tensor]:
        # a lazy combination is linear: combine scores, which are fewer than weights
        terms = w.terms if isinstance(w, LazyCombination) else ((1.0, w),)
        potentials = {}
        for kind, begin, end in zip(
            self.kinds, self._weight_offsets, self._weight_offsets[1:], strict=False
        ):
            scores = [
                kind.potentials(vector[begin:end], example_indices)
                for _, vector in terms
            ]
            if len(terms) > 1 or terms[0][0] != 1:
                scores = [
                    factor * score
                    for (factor, _), score in zip(terms, scores, strict=True)
                ]
            kind_potentials = potentials[kind.name] = sum(scores[1:], scores[0])
            if not bool(kind_potentials.isfinite().all()):
                raise checks.Diverged(
                    f"w: expected weights at which the potentials {kind.name!r} are"
                    " finite; scale down the weights or the features"
                )
        return potentials

    def _prepare(
        self, w: Weights | LazyCombination, example_indices: Ints
    ) -> _PreparedBatch:
        potentials = self._compute_potentials(w, example_indices)
        # leaf tensors: the chain rule through the sparse features is applied in scipy
        leaves = [x.requires_grad_() for x in potentials.values()]
        structure = build_structure(
            self.build, potentials, self._make_batch(example_indices)
        )
        y = self._gold_outputs.pad(example_indices, structure)
        return _PreparedBatch(example_indices, leaves, structure, y)

    @property
    def _gold_outputs(self) -> Outputs:
        if self._outputs is None:
            raise ValueError(
                "y: expected the gold outputs, got None; without them only decode(w) "
                "is available"
            )
        return self._outputs

    def _iter_chunks(self, example_indices: Ints | None = None) -> Iterator[Ints]:
        """Yield consecutive indices whose padded potentials fit ``_MAX_CHUNK_SIZE``."""
        indices = self._all_indices if example_indices is None else example_indices
        sizes = np.max([kind.costs()[indices] for kind in self._part_scores], axis=0)
        begin, largest = 0, 1
        for end, size in enumerate(sizes.tolist()):
            largest = max(largest, size)
            # a chunk is padded to its largest example
            if end > begin and (end + 1 - begin) * largest > _MAX_CHUNK_SIZE:
                yield indices[begin:end]
                begin, largest = end, max(size, 1)
        yield indices[begin:]

    def _compute_costs(self, batch: _PreparedBatch) -> Tensor:
        scale = torch.from_numpy(self.cost_scale[batch.example_indices])
        return compute_costs(
            self.cost, batch.structure, batch.y, scale, batch.example_indices
        )

    def _validate_outputs(self) -> None:
        zero = np.zeros(self.num_weights)
        with torch.no_grad():
            declared_shapes = [
                declared_output_shapes(self.structure(zero, shapes))
                for shapes in self._iter_chunks()
            ]
        self._outputs = self._gold_outputs.trim_padding(
            [shapes for shapes in declared_shapes if shapes is not None]
        )
        for chunk in self._iter_chunks():
            with torch.no_grad():
                batch = self._prepare(zero, chunk)
                gold_scores = batch.structure.score(batch.y).numpy()
            is_nonzero = gold_scores != 0
            if is_nonzero.any():
                i = int(is_nonzero.argmax())
                raise ValueError(
                    "y: expected outputs that the structure allows, with a score that"
                    " is linear in the potentials, so 0 at weights 0, got"
                    f" {gold_scores[i]} at example {chunk[i]}"
                )
            has_custom_cost, structure = callable(self.cost), batch.structure
            if not hasattr(structure, "augment") or not (
                has_custom_cost or hasattr(structure, "hamming")
            ):
                continue
            # Hamming costs are checked once, on the first chunk
            if has_custom_cost or chunk[0] == 0:
                require_valid_costs(
                    structure, batch.y, self._compute_costs(batch), chunk
                )

    # the max oracle

    def _decode_worst(
        self, batch: _PreparedBatch, outputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """Return hinges, costs of the worst outputs, gradients of hinges, and outputs.

        If ``outputs`` are given, they replace the worst ones.
        """
        cost = self._compute_costs(batch)
        augmented = batch.structure.augment(cost)
        if outputs is None:
            with torch.no_grad():
                outputs = augmented.decode()[1]
        # autograd of the score differentiates through the fixed outputs, not through
        # decode
        hinges = augmented.score(outputs) - batch.structure.score(batch.y)
        gradients = compute_gradients(hinges, [*batch.potentials, cost])
        # scores are linear in the costs: gradient times cost is the cost of an output
        losses = (gradients.pop() * cost.detach()).reshape(len(cost), -1).sum(1)
        return hinges.detach(), losses, gradients, outputs

    def worst(self, i: int, w: Weights) -> Corner:
        """Return an output of example i with the largest ``loss - <w, psi>``."""
        if not 0 <= i < len(self):
            raise IndexError(f"i: expected 0 to {len(self) - 1}, got {i}")
        batch = self._prepare(self._check_weights(w), np.array([i]))
        [corner] = self._as_corners(batch, *self._decode_worst(batch))
        return corner

    def worst_many(self, rows: Any, w: Weights) -> list[Corner]:
        """Return ``worst`` of several examples, decoded in batches."""
        w, corners = self._check_weights(w), []
        for chunk in self._iter_chunks(self._all_indices[rows]):
            batch = self._prepare(w, chunk)
            if len(self._part_scores) == len(self.kinds):
                corners += self._as_corners(batch, *self._decode_worst(batch))
                continue
            with torch.no_grad():
                augmented = batch.structure.augment(self._compute_costs(batch))
                outputs = augmented.decode()[1]
            # autograd sums gradients of shared potentials over a batch: one at a time
            for i, y in zip(chunk, outputs, strict=True):
                single_batch = self._prepare(w, np.array([i]))
                single_output = y[tuple(map(slice, single_batch.y.shape[1:]))][None]
                corners += self._as_corners(
                    single_batch, *self._decode_worst(single_batch, single_output)
                )
        return corners

    def _as_corners(
        self,
        batch: _PreparedBatch,
        _: Tensor,
        losses: Tensor,
        gradients: list[Tensor],
        outputs: Tensor,
    ) -> list[Corner]:
        corners = []
        vectors = self._as_sparse_gradients(gradients, batch.example_indices)
        keys = self._gold_outputs.unpad(outputs, batch.example_indices)
        for vector, loss, key in zip(vectors, losses.tolist(), keys, strict=True):
            psi = sparse.csr_matrix(
                (-vector.values, vector.columns, [0, len(vector.columns)]),
                shape=(1, self.num_weights),
            )
            corners.append(Corner(psi, max(loss, 0.0), key.tobytes()))
        return corners

    def hinges(self, w: Weights) -> Weights:
        """``(n,)``: the structured hinge of each example, one oracle call each."""
        w, hinges = self._check_weights(w), np.empty(len(self))
        for chunk in self._iter_chunks():
            with torch.no_grad():
                batch = self._prepare(w, chunk)
                augmented = batch.structure.augment(self._compute_costs(batch))
                chunk_hinges = augmented.decode()[0] - batch.structure.score(batch.y)
            # rounding can make the hinge of the gold output slightly negative
            hinges[chunk] = chunk_hinges.clamp(min=0).numpy()
        return hinges

    def primal(self, w: Weights, lam: float) -> float:
        """Objective at w; ``lam > 0``."""
        lam = checks.as_positive("lam", lam)
        w = self._check_weights(w)
        return float(lam / 2 * np.dot(w, w) + self.hinges(w).mean())

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        w, v = self._check_weights(w), np.zeros(self.num_weights)
        loss = hinge = 0.0
        for chunk in self._iter_chunks():
            batch = self._prepare(w, chunk)
            hinges, losses, gradients, _ = self._decode_worst(batch)
            loss += float(losses.clamp(min=0).sum())
            hinge += float(hinges.clamp(min=0).sum())
            self._accumulate_gradients(gradients, chunk, v)
        v *= -scale
        return v, loss / len(self), hinge / len(self)

    def decode(self, w: Weights) -> list[NDArray[np.int64]]:
        """Return the output of highest score of each example."""
        w, decoded = self._check_weights(w), []
        for chunk in self._iter_chunks():
            with torch.no_grad():
                structure = self.structure(w, chunk)
                outputs = structure.decode()[1]
            decoded += unpad(outputs, compute_output_shapes(structure, outputs))
        return decoded

    # losses of examples and their gradients

    def _compute_losses(
        self,
        batch: _PreparedBatch,
        loss: str,
        mu: float,
        k: int,
        cost: Tensor | None = None,
    ) -> Tensor:
        """``(batch,)``: differentiable losses of the examples."""
        structure, y = batch.structure, batch.y
        if loss == "likelihood":
            return functional.crf_nll(structure, y)
        smoothing: Any = None
        if loss != "hinge" and mu > 0:
            smoothing = Entropy(mu) if loss == "hinge-entropy" else L2(mu, k)
        if cost is None:
            cost = self._compute_costs(batch).detach()
        return functional.structural_hinge(structure, y, smoothing=smoothing, cost=cost)

    def losses(
        self, w: Weights, loss: str, mu: float, k: int, rows: Ints | None = None
    ) -> Weights:
        """``(batch,)``: losses at w, smoothed from above; ``mu = 0`` is the hinge."""
        w, losses = self._check_weights(w), []
        for chunk in self._iter_chunks(rows):
            with torch.no_grad():
                batch = self._prepare(w, chunk)
                losses.append(self._compute_losses(batch, loss, mu, k).numpy())
        return np.concatenate(losses)

    def slopes(
        self, w: Weights | LazyCombination, loss: str, mu: float, k: int, rows: Ints
    ) -> tuple[Weights, list[SparseVector]]:
        """Return losses of the examples ``rows`` and the sparse gradient of each."""
        w, losses_of_chunks, gradients = self._check_weights(w), [], []
        has_shared = len(self._part_scores) < len(self.kinds)
        # autograd sums gradients of shared potentials over a batch: one example each
        for chunk in rows[:, None] if has_shared else self._iter_chunks(rows):
            batch = self._prepare(w, chunk)
            chunk_losses, chunk_gradients = self._losses_and_gradients(
                batch, loss, mu, k
            )
            losses_of_chunks.append(chunk_losses)
            gradients += self._as_sparse_gradients(chunk_gradients, chunk)
        return np.concatenate(losses_of_chunks), gradients

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """Return the mean loss, smoothed from above, and its gradient."""
        w, total, mean_gradient = (
            self._check_weights(w),
            0.0,
            np.zeros(self.num_weights),
        )
        for chunk in self._iter_chunks():
            losses, gradients = self._losses_and_gradients(
                self._prepare(w, chunk), loss, mu, k
            )
            total += float(losses.sum())
            self._accumulate_gradients(gradients, chunk, mean_gradient)
        mean_gradient /= len(self)
        return total / len(self), mean_gradient

    def tangent(self, w: Weights, loss: str, mu: float, k: int) -> Tangent:
        """Return the mean loss, smoothed from above, its gradient and expected cost."""
        w, total, gradient_sum = (
            self._check_weights(w),
            np.zeros(2),
            np.zeros(self.num_weights),
        )
        for chunk in self._iter_chunks():
            batch = self._prepare(w, chunk)
            cost = self._compute_costs(batch)
            losses = self._compute_losses(batch, loss, mu, k, cost)
            gradients = compute_gradients(losses, [*batch.potentials, cost])
            expected_costs = gradients.pop() * cost.detach()
            total += float(losses.detach().sum()), float(expected_costs.sum())
            self._accumulate_gradients(gradients, chunk, gradient_sum)
        value, mean_cost = (total / len(self)).tolist()
        return value, gradient_sum / len(self), mean_cost

    def _losses_and_gradients(
        self, batch: _PreparedBatch, loss: str, mu: float, k: int
    ) -> tuple[Weights, list[Tensor]]:
        if loss == "hinge" or (mu == 0 and loss != "likelihood"):
            hinges, _, gradients, _ = self._decode_worst(batch)
            return hinges.numpy(), gradients
        losses = self._compute_losses(batch, loss, mu, k)
        return losses.detach().numpy(), compute_gradients(losses, batch.potentials)

    def _accumulate_gradients(
        self, gradients: Sequence[Tensor], example_indices: Ints, out: Weights
    ) -> None:
        for kind, gradient, begin, end in zip(
            self.kinds,
            gradients,
            self._weight_offsets,
            self._weight_offsets[1:],
            strict=False,
        ):
            if isinstance(kind, PartScores):
                kind.add_gradient(gradient, example_indices, out[begin:end])
            else:
                out[begin:end] += gradient.numpy().ravel()

    def _as_sparse_gradients(
        self, gradients: Sequence[Tensor], example_indices: Ints
    ) -> list[SparseVector]:
        """Return the gradient of each example as a sparse vector.

        Gradients of shared potentials are added to the first example, so that batches
        with shared potentials must have one example.
        """
        examples, columns, values = [], [], []
        for kind, gradient, weight_offset in zip(
            self.kinds, gradients, self._weight_offsets, strict=False
        ):
            if isinstance(kind, PartScores):
                example, column, value = kind.entries(gradient, example_indices)
            else:
                flat_gradient = gradient.numpy().ravel()
                column = np.flatnonzero(flat_gradient)
                example, value = np.zeros_like(column), flat_gradient[column]
            examples.append(example)
            columns.append(column + weight_offset)
            values.append(value)
        example, column = np.concatenate(examples), np.concatenate(columns)
        value = np.concatenate(values)
        # stable: equal columns are summed in a fixed order, for reproducible bits
        order = np.argsort(example, kind="stable")
        bounds = np.searchsorted(example[order], np.arange(len(example_indices) + 1))
        return [
            SparseVector.from_entries(column[order[begin:end]], value[order[begin:end]])
            for begin, end in pairwise(bounds)
        ]

    def subset(self, rows: Any) -> "StructureProblem":
        """Return the problem of the examples ``rows``, in that order.

        ``batch.rows`` of the result are indices into ``rows``.

        Parameters
        ----------
        rows
            Indices of examples, or one bool an example.
        """
        example_indices = self._all_indices[rows]
        if not len(example_indices):
            raise ValueError("rows: expected at least one example, got none")
        problem = object.__new__(type(self))
        problem.__dict__.update(self.__dict__)
        for name in ("checksum", "_mean_log_num_outputs"):
            problem.__dict__.pop(name, None)
        problem.kinds = [
            kind.subset(example_indices) if isinstance(kind, PartScores) else kind
            for kind in self.kinds
        ]
        problem._part_scores = [
            kind for kind in problem.kinds if isinstance(kind, PartScores)
        ]
        problem.cost_scale = self.cost_scale[example_indices]
        if self._outputs is not None:
            problem._outputs = self._outputs.select(example_indices)
        problem._all_indices = np.arange(len(example_indices))
        return problem

    def _check_weights(self, w: Any) -> Any:
        if isinstance(w, LazyCombination):
            return w
        w = np.ascontiguousarray(w, dtype=np.float64)
        if w.shape != (self.num_weights,):
            raise ValueError(
                f"w: expected ({self.num_weights},) weights, got {w.shape}"
            )
        return w
