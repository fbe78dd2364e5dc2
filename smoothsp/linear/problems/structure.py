"""A linear model over any structure."""

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
    cut,
    declared_output_shapes,
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

# Numbers in the padded potentials of the examples that are asked about at once.
_CHUNK = 2**19


class _Asked(NamedTuple):
    """Potentials of some examples, and the structure of them."""

    chosen: Ints
    potentials: list[Tensor]
    structure: Any
    y: Tensor


class StructureProblem(StructureRiskMixin):
    r"""A linear structured SVM, or a CRF, over any structure.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2 + \tfrac{1}{n} \sum_i
        \max_y L_i(y) + \langle w, \phi_i(y) - \phi_i(y_i) \rangle

    Potentials are linear in the weights: products of weights with features of parts, or
    the weights themselves. You can use any structure of ``smoothsp.oracles``, or your
    own. The features ``phi`` of an output come from the gradient of ``score(y)``.
    Features stay sparse. A structure holds many examples at once if the solver takes
    them in batches.

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
        For shapes, values and outputs that do not fit; the message says where.
    TypeError
        For features that are no matrices of numbers, outputs that are no integers, and
        a ``build`` that is no function.

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

    # what messages call the features
    called = "features"
    # corners are sparse rows
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
            shown = checks.short_repr(cost)
            raise ValueError(f"cost: expected 'hamming' or a function, got {shown}")
        self.build, self.cost = build, cost
        self.kinds = make_potential_kinds(features)
        self._parts = [kind for kind in self.kinds if isinstance(kind, PartScores)]
        n = len(self._parts[0].shapes)
        self.cost_scale = _rows.as_cost_scale(cost_scale, n)
        self._outputs = None if y is None else Outputs.of(y, n)
        self._ends = np.cumsum([0, *(kind.num_weights for kind in self.kinds)])
        self.num_weights = int(self._ends[-1])
        self._numbers = np.arange(n)
        if y is not None:
            self._check_outputs()

    def __len__(self) -> int:
        """Number of examples."""
        return len(self._numbers)

    @cached_property
    def checksum(self) -> int:
        """Checksum of the examples, outputs and costs."""
        outputs = () if self._outputs is None else self._outputs
        found = [self.cost_scale, *outputs]
        for kind in self._parts:
            rows = kind.rows
            found += [rows.indptr, rows.indices, rows.values, kind.shapes]
        return arrays.checksum(*found, self._ends)

    def split(self, w: Weights) -> dict[str, Weights]:
        """Return the weights of each kind of potentials, as views."""
        w = self._checked(w)
        found = {}
        for kind, a, b in zip(self.kinds, self._ends, self._ends[1:], strict=False):
            table = w[a:b]
            if isinstance(kind, PartScores):
                width = () if kind.states is None else (kind.width,)
                found[kind.name] = table.reshape(kind.rows.columns, *width)
            else:
                found[kind.name] = table.reshape(kind.shape)
        return found

    # the structure of some examples

    def structure(self, w: Weights, rows: Any = None) -> Any:
        """Return the structure of ``rows``, by default all examples, at weights w."""
        chosen = self._numbers if rows is None else self._numbers[rows]
        potentials = self._potentials(self._checked(w), chosen)
        return build_structure(self.build, potentials, self._batch(chosen))

    def _batch(self, chosen: Ints) -> Batch:
        sizes = {kind.name: kind.sizes(chosen) for kind in self._parts}
        return Batch(torch.from_numpy(chosen.copy()), sizes)

    def _potentials(
        self, w: Weights | LazyCombination, chosen: Ints
    ) -> dict[str, Tensor]:
        terms = w.terms if isinstance(w, LazyCombination) else ((1.0, w),)
        found = {}
        for kind, a, b in zip(self.kinds, self._ends, self._ends[1:], strict=False):
            scores = [kind.potentials(v[a:b], chosen) for _, v in terms]
            if len(terms) > 1 or terms[0][0] != 1:
                scores = [f * x for (f, _), x in zip(terms, scores, strict=True)]
            known = found[kind.name] = sum(scores[1:], scores[0])
            if not bool(known.isfinite().all()):
                raise checks.Diverged(
                    f"w: expected weights at which the potentials {kind.name!r} are"
                    " finite; scale down the weights or the features"
                )
        return found

    def _ask(self, w: Weights | LazyCombination, chosen: Ints) -> _Asked:
        potentials = self._potentials(w, chosen)
        leaves = [x.requires_grad_() for x in potentials.values()]
        structure = build_structure(self.build, potentials, self._batch(chosen))
        y = self._gold.padded(chosen, structure)
        return _Asked(chosen, leaves, structure, y)

    @property
    def _gold(self) -> Outputs:
        if self._outputs is None:
            raise ValueError(
                "y: expected the gold outputs, got None; without them only decode(w) "
                "is available"
            )
        return self._outputs

    def _chunks(self, rows: Ints | None = None) -> Iterator[Ints]:
        """Examples whose padded potentials fit in a bounded piece of memory."""
        chosen = self._numbers if rows is None else rows
        sizes = np.max([kind.costs()[chosen] for kind in self._parts], axis=0)
        begin, most = 0, 1
        for end, size in enumerate(sizes.tolist()):
            most = max(most, size)
            if end > begin and (end + 1 - begin) * most > _CHUNK:
                yield chosen[begin:end]
                begin, most = end, max(size, 1)
        yield chosen[begin:]

    def _costs(self, asked: _Asked) -> Tensor:
        scale = torch.from_numpy(self.cost_scale[asked.chosen])
        return compute_costs(self.cost, asked.structure, asked.y, scale, asked.chosen)

    def _check_outputs(self) -> None:
        zero = np.zeros(self.num_weights)
        with torch.no_grad():
            said = [
                declared_output_shapes(self.structure(zero, x)) for x in self._chunks()
            ]
        self._outputs = self._gold.fitted([x for x in said if x is not None])
        for chosen in self._chunks():
            with torch.no_grad():
                asked = self._ask(zero, chosen)
                found = asked.structure.score(asked.y).numpy()
            wrong = found != 0
            if wrong.any():
                i = int(wrong.argmax())
                raise ValueError(
                    "y: expected outputs that the structure allows, with a score that"
                    " is linear in the potentials, so 0 at weights 0, got"
                    f" {found[i]} at example {chosen[i]}"
                )
            own, made = callable(self.cost), asked.structure
            if not hasattr(made, "augment") or not (own or hasattr(made, "hamming")):
                continue
            if own or chosen[0] == 0:
                require_valid_costs(made, asked.y, self._costs(asked), chosen)

    # the max oracle

    def _worst(
        self, asked: _Asked, outputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """Hinges, costs of the worst outputs, slopes of the hinges, and the outputs.

        With ``outputs`` these stand for the worst ones.
        """
        cost = self._costs(asked)
        augmented = asked.structure.augment(cost)
        if outputs is None:
            with torch.no_grad():
                outputs = augmented.decode()[1]
        hinges = augmented.score(outputs) - asked.structure.score(asked.y)
        slopes = compute_gradients(hinges, [*asked.potentials, cost])
        losses = (slopes.pop() * cost.detach()).reshape(len(cost), -1).sum(1)
        return hinges.detach(), losses, slopes, outputs

    def worst(self, i: int, w: Weights) -> Corner:
        """An output of example i with the largest ``loss - <w, psi>``; psi is CSR."""
        if not 0 <= i < len(self):
            raise IndexError(f"i: expected 0 to {len(self) - 1}, got {i}")
        asked = self._ask(self._checked(w), np.array([i]))
        [found] = self._corners(asked, *self._worst(asked))
        return found

    def worst_many(self, rows: Any, w: Weights) -> list[Corner]:
        """``worst`` of several examples, for which the structure decodes at once."""
        w, found = self._checked(w), []
        for chosen in self._chunks(self._numbers[rows]):
            asked = self._ask(w, chosen)
            if len(self._parts) == len(self.kinds):
                found += self._corners(asked, *self._worst(asked))
                continue
            with torch.no_grad():
                augmented = asked.structure.augment(self._costs(asked))
                outputs = augmented.decode()[1]
            # slopes of shared potentials are those of one example at a time
            for i, y in zip(chosen, outputs, strict=True):
                one = self._ask(w, np.array([i]))
                alone = y[tuple(map(slice, one.y.shape[1:]))][None]
                found += self._corners(one, *self._worst(one, alone))
        return found

    def _corners(
        self,
        asked: _Asked,
        _: Tensor,
        losses: Tensor,
        slopes: list[Tensor],
        outputs: Tensor,
    ) -> list[Corner]:
        found = []
        rows = self._sparse(slopes, asked.chosen)
        keys = self._gold.cut(outputs, asked.chosen)
        for row, loss, key in zip(rows, losses.tolist(), keys, strict=True):
            psi = sparse.csr_matrix(
                (-row.values, row.columns, [0, len(row.columns)]),
                shape=(1, self.num_weights),
            )
            found.append(Corner(psi, max(loss, 0.0), key.tobytes()))
        return found

    def hinges(self, w: Weights) -> Weights:
        """``(n,)``: the structured hinge of each example, one oracle call each."""
        w, found = self._checked(w), np.empty(len(self))
        for chosen in self._chunks():
            with torch.no_grad():
                asked = self._ask(w, chosen)
                augmented = asked.structure.augment(self._costs(asked))
                value = augmented.decode()[0] - asked.structure.score(asked.y)
            found[chosen] = value.clamp(min=0).numpy()
        return found

    def primal(self, w: Weights, lam: float) -> float:
        """The objective at w; ``lam > 0``."""
        lam = checks.as_positive("lam", lam)
        w = self._checked(w)
        return float(lam / 2 * np.dot(w, w) + self.hinges(w).mean())

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        w, v = self._checked(w), np.zeros(self.num_weights)
        loss = hinge = 0.0
        for chosen in self._chunks():
            asked = self._ask(w, chosen)
            hinges, losses, slopes, _ = self._worst(asked)
            loss += float(losses.clamp(min=0).sum())
            hinge += float(hinges.clamp(min=0).sum())
            self._add(slopes, chosen, v)
        v *= -scale
        return v, loss / len(self), hinge / len(self)

    def decode(self, w: Weights) -> list[NDArray[np.int64]]:
        """The best output of each example."""
        w, found = self._checked(w), []
        for chosen in self._chunks():
            with torch.no_grad():
                structure = self.structure(w, chosen)
                outputs = structure.decode()[1]
            found += cut(outputs, compute_output_shapes(structure, outputs))
        return found

    # losses of rows, and their slopes

    def _losses(
        self, asked: _Asked, loss: str, mu: float, k: int, cost: Tensor | None = None
    ) -> Tensor:
        """Losses of the examples, differentiable."""
        structure, y = asked.structure, asked.y
        if loss == "likelihood":
            return functional.crf_nll(structure, y)
        smoothing: Any = None
        if loss != "hinge" and mu > 0:
            smoothing = Entropy(mu) if loss == "hinge-entropy" else L2(mu, k)
        if cost is None:
            cost = self._costs(asked).detach()
        return functional.structural_hinge(structure, y, smoothing=smoothing, cost=cost)

    def losses(
        self, w: Weights, loss: str, mu: float, k: int, rows: Ints | None = None
    ) -> Weights:
        """Losses of the examples; ``mu = 0`` is the hinge. Smoothed from above."""
        w, found = self._checked(w), []
        for chosen in self._chunks(rows):
            with torch.no_grad():
                asked = self._ask(w, chosen)
                found.append(self._losses(asked, loss, mu, k).numpy())
        return np.concatenate(found)

    def slopes(
        self, w: Weights | LazyCombination, loss: str, mu: float, k: int, rows: Ints
    ) -> tuple[Weights, list[SparseVector]]:
        """Losses of some examples, and the gradient of each as a sparse row."""
        w, values, found = self._checked(w), [], []
        alone = len(self._parts) < len(self.kinds)
        for chosen in rows[:, None] if alone else self._chunks(rows):
            asked = self._ask(w, chosen)
            losses, slopes = self._sloped(asked, loss, mu, k)
            values.append(losses)
            found += self._sparse(slopes, chosen)
        return np.concatenate(values), found

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """The mean loss, smoothed from above, and its gradient."""
        w, total, out = self._checked(w), 0.0, np.zeros(self.num_weights)
        for chosen in self._chunks():
            losses, slopes = self._sloped(self._ask(w, chosen), loss, mu, k)
            total += float(losses.sum())
            self._add(slopes, chosen, out)
        out /= len(self)
        return total / len(self), out

    def tangent(self, w: Weights, loss: str, mu: float, k: int) -> Tangent:
        """The mean loss, smoothed from above, its gradient, and the expected cost."""
        w, total, out = self._checked(w), np.zeros(2), np.zeros(self.num_weights)
        for chosen in self._chunks():
            asked = self._ask(w, chosen)
            cost = self._costs(asked)
            losses = self._losses(asked, loss, mu, k, cost)
            slopes = compute_gradients(losses, [*asked.potentials, cost])
            expected = slopes.pop() * cost.detach()
            total += float(losses.detach().sum()), float(expected.sum())
            self._add(slopes, chosen, out)
        value, cost_of_all = (total / len(self)).tolist()
        return value, out / len(self), cost_of_all

    def _sloped(
        self, asked: _Asked, loss: str, mu: float, k: int
    ) -> tuple[Weights, list[Tensor]]:
        if loss == "hinge" or (mu == 0 and loss != "likelihood"):
            hinges, _, slopes, _ = self._worst(asked)
            return hinges.numpy(), slopes
        losses = self._losses(asked, loss, mu, k)
        return losses.detach().numpy(), compute_gradients(losses, asked.potentials)

    def _add(self, slopes: Sequence[Tensor], chosen: Ints, out: Weights) -> None:
        for kind, slope, a, b in zip(
            self.kinds, slopes, self._ends, self._ends[1:], strict=False
        ):
            if isinstance(kind, PartScores):
                kind.add_gradient(slope, chosen, out[a:b])
            else:
                out[a:b] += slope.numpy().ravel()

    def _sparse(self, slopes: Sequence[Tensor], chosen: Ints) -> list[SparseVector]:
        """Sparse gradients of the examples; shared potentials count as one example."""
        owners, columns, values = [], [], []
        for kind, slope, begin in zip(self.kinds, slopes, self._ends, strict=False):
            if isinstance(kind, PartScores):
                owner, column, value = kind.entries(slope, chosen)
            else:
                flat = slope.numpy().ravel()
                column = np.flatnonzero(flat)
                owner, value = np.zeros_like(column), flat[column]
            owners.append(owner)
            columns.append(column + begin)
            values.append(value)
        owner, column = np.concatenate(owners), np.concatenate(columns)
        value = np.concatenate(values)
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(len(chosen) + 1))
        return [
            SparseVector.summed(column[order[a:b]], value[order[a:b]])
            for a, b in pairwise(ends)
        ]

    def subset(self, rows: Any) -> "StructureProblem":
        """A problem of the examples ``rows``, in that order.

        Its ``batch.rows`` count these examples from 0.

        Parameters
        ----------
        rows
            Indices of examples, or one bool an example.
        """
        chosen = self._numbers[rows]
        if not len(chosen):
            raise ValueError("rows: expected at least one example, got none")
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        for name in ("checksum", "_mean_log_count"):
            part.__dict__.pop(name, None)
        part.kinds = [
            kind.subset(chosen) if isinstance(kind, PartScores) else kind
            for kind in self.kinds
        ]
        part._parts = [kind for kind in part.kinds if isinstance(kind, PartScores)]
        part.cost_scale = self.cost_scale[chosen]
        if self._outputs is not None:
            part._outputs = self._outputs.take(chosen)
        part._numbers = np.arange(len(chosen))
        return part

    def _checked(self, w: Any) -> Any:
        if isinstance(w, LazyCombination):
            return w
        w = np.ascontiguousarray(w, dtype=np.float64)
        if w.shape != (self.num_weights,):
            raise ValueError(
                f"w: expected ({self.num_weights},) weights, got {w.shape}"
            )
        return w
