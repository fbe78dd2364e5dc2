"""Sequences with sparse features and a label at each position, as a problem."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import gradients
from smoothsp._kernels.linear import sequences as kernels
from smoothsp._kernels.linear.frank_wolfe import add_subgradients
from smoothsp._kernels.linear.sequence_loss import ENTROPY, MAX, TOP_K
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.inputs import arrays, checks
from smoothsp.linear.inputs.arrays import aligned_zeros, round_up_to_lanes
from smoothsp.linear.problems import _rows
from smoothsp.linear.problems.batch import ValueAndGradient, require_smoothing
from smoothsp.linear.problems.callback import Corner

Weights = NDArray[np.float64]
# Scores below two to this power never overflow on the way.
_LARGE = 1000


class ChainProblem:
    r"""Tagging as a linear structured SVM over chains.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2
        + \tfrac{1}{n} \sum_i \omega_i \max_y \left[ \Delta_i(y)
        + \langle w, \phi(x_i, y) - \phi(x_i, y_i) \rangle \right]

    The score of a labelling is ``sum_t E[t, y_t] + sum_t A[y_{t-1}, y_t] + start[y_0]
    + end[y_{T-1}]`` with ``E = X_i W``. Its cost is ``cost_scale[i] sum_t
    cost[gold_t, y_t]``.

    Parameters
    ----------
    features
        ``(positions, features)``, with the positions of all sequences one below the
        other, dense or a scipy sparse matrix. float32 is kept, all other dtypes become
        float64.
    labels
        ``(positions,)``: integers from 0 to ``num_labels - 1``.
    offsets
        ``(n + 1,)``: sequence i has the positions ``offsets[i]`` to ``offsets[i + 1]``.
        The loss of an empty sequence is 0.
    lengths
        ``(n,)``, instead of ``offsets``.
    num_labels
        Number of labels, at least 2; by default the largest label plus one.
    cost
        ``(num_labels, num_labels)``, from the gold label to the predicted one: at least
        0, zero on the diagonal. By default 1 for each wrong label (Hamming).
    cost_scale
        ``(n,)``, positive: factor of the cost of a sequence, by default 1. One over its
        length makes the cost a rate.
    boundaries
        If True, learn scores of the first and of the last label.
    loss_scale
        ``(n,)``, at least 0: omega, the factor of the loss of a sequence; by default 1.
        Factors with mean 1 have the effect of repeating sequences.
    all_pairs
        If False, only pairs that occur in these sequences have a weight, as by default
        in CRFsuite. These are pairs of a feature and a label, pairs of neighbouring
        labels, and the first and last labels. All other entries of ``w``, of gradients
        and of psi are 0. For :class:`LBFGS`, :class:`SDCA`, :class:`AGM`,
        :class:`BMRM` and :class:`BatchFrankWolfe`.

    Raises
    ------
    ValueError
        For shapes, values and indices that do not fit; the message says where.
    TypeError
        For features that are no matrix of numbers, and labels that are no integers.

    Notes
    -----
    Weights are one flat float64 vector: W of ``(features, labels)`` row by row, then A
    of ``(labels, labels)`` with ``A[from, to]``. With ``boundaries``, start and end of
    ``(labels,)`` follow.

    Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
    Structured SVMs", equations 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> len(problem), problem.num_weights
    (2, 14)
    >>> float(problem.primal(np.zeros(problem.num_weights), lam=0.1))
    1.5
    """

    transitions = True
    # what messages call the features
    called = "features"
    # where in padded weights those of pairs that occur are; None: all pairs have one
    seen: NDArray[np.int64] | None = None

    def __init__(
        self,
        features: Any,
        labels: Any,
        offsets: Any = None,
        *,
        lengths: Any = None,
        num_labels: int | None = None,
        cost: Any = None,
        cost_scale: Any = None,
        boundaries: bool = True,
        loss_scale: Any = None,
        all_pairs: bool = True,
    ) -> None:
        rows = _rows.as_rows("features", features)
        positions = len(rows.indptr) - 1
        found = _rows.as_offsets(offsets, lengths, positions)
        labels, count = _rows.as_labels(labels, positions, num_labels)
        self._keep(
            rows,
            labels,
            found,
            _rows.as_cost_matrix(cost, count),
            _rows.as_cost_scale(cost_scale, len(found) - 1),
            checks.as_bool("boundaries", boundaries),
            _rows.as_loss_scale(loss_scale, len(found) - 1),
        )
        if not checks.as_bool("all_pairs", all_pairs):
            self.seen = self._occurring()

    @classmethod
    def from_sequences(
        cls, features: Sequence[Any], labels: Sequence[Any], **options: Any
    ) -> "ChainProblem":
        """Create the problem from a matrix and labels for each sequence.

        Parameters
        ----------
        features
            CSR matrices or dense arrays ``(length, features)``.
        labels
            Integer arrays ``(length,)``.
        options
            Those of the class, without ``offsets`` and ``lengths``.
        """
        matrix = _rows.stack_labelled_sequences("features", features, labels)
        lengths = [len(y) for y in labels]
        known = [np.asarray(y) for y in labels if len(y)]
        flat = np.concatenate([np.zeros(0, np.int64), *known])
        return cls(matrix, flat, lengths=lengths, **options)

    @classmethod
    def unlabelled(
        cls, rows: _rows.Rows, lengths: NDArray[np.int64], num_labels: int
    ) -> "ChainProblem":
        """Problem of sequences to be tagged, of checked rows; all labels are 0."""
        problem = object.__new__(cls)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        labels = np.zeros(len(rows.indptr) - 1, dtype=np.int32)
        costs, ones = np.zeros((num_labels, num_labels)), np.ones(len(lengths))
        problem._keep(rows, labels, offsets, costs, ones, True, ones)
        return problem

    def _keep(
        self,
        rows: _rows.Rows,
        labels: NDArray[np.int32],
        offsets: NDArray[np.int64],
        cost: NDArray[np.float64],
        cost_scale: NDArray[np.float64],
        boundaries: bool,
        loss_scale: NDArray[np.float64],
    ) -> None:
        self.indptr, self.indices, self.values, self.num_features = rows
        self.labels, self.offsets = labels, offsets
        self.cost, self.cost_scale, self.boundaries = cost, cost_scale, boundaries
        self.loss_scale = loss_scale
        self.num_labels = S = len(cost)
        # rows of the weights as compiled loops have them: see linear.sparse_scores
        self.row_width = P = round_up_to_lanes(S, np.float64)
        d = self.num_features
        table = np.full((S, P), -np.inf)
        table[:, :S] = cost
        past = d + S if self.transitions else d
        self.num_rows = past + 2 if boundaries else past
        self.sequences = kernels.Sequences(
            indptr=self.indptr,
            indices=self.indices,
            values=self.values,
            offsets=offsets,
            labels=labels,
            costs=table.ravel(),
            scales=cost_scale,
            loss_scales=loss_scale,
            S=S,
            P=P,
            transition_offset=d * P if self.transitions else -1,
            start_offset=past * P if boundaries else -1,
            end_offset=(past + 1) * P if boundaries else -1,
            max_length=int(np.diff(offsets).max(initial=0)),
            tied_index=np.zeros(0, np.int32),
        )

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.offsets) - 1

    @cached_property
    def checksum(self) -> int:
        """Checksum of the sequences, labels and costs."""
        # states of problems without such scales are those of before there were any
        scales: list[NDArray[Any]] = []
        if not (self.loss_scale == 1).all():
            scales.append(self.loss_scale)
        if self.seen is not None:
            scales.append(self.seen)
        return arrays.checksum(
            self.indptr, self.indices, self.values, self.offsets, self.labels,
            self.cost, self.cost_scale, np.array([self.boundaries, self.num_features]),
            *scales,
        )  # fmt: skip

    @property
    def num_weights(self) -> int:
        """Length of w."""
        return self.num_rows * self.num_labels

    @property
    def flat_size(self) -> int:
        """Length of padded weights."""
        return self.num_rows * self.row_width

    @property
    def border(self) -> int:
        """Offsets of transitions, start and end in padded weights."""
        return self.num_features * self.row_width

    @property
    def apart(self) -> kernels.Sequences:
        """Arrays for loops that take W and the other weights as two arrays."""
        s = self.sequences
        names = ("transition_offset", "start_offset", "end_offset")
        given = {name: getattr(s, name) for name in names if getattr(s, name) >= 0}
        return s._replace(**{name: at - self.border for name, at in given.items()})

    def used(self) -> NDArray[np.int64]:
        """Positions in padded weights of the weights that any sequence uses."""
        if self.seen is not None:
            return self.seen
        occur = np.zeros(self.num_rows, dtype=bool)
        occur[self.indices] = True
        occur[self.num_features :] = True
        rows = np.flatnonzero(occur) * self.row_width
        return (rows[:, None] + np.arange(self.num_labels)).ravel()

    def _occurring(self) -> NDArray[np.int64]:
        """Positions in padded weights of pairs that occur where losses count."""
        s, P, lengths = self.sequences, self.row_width, np.diff(self.offsets)
        counts = np.repeat(self.loss_scale > 0, lengths)
        labels = self.labels.astype(np.int64)
        of_entry = np.repeat(np.arange(len(labels)), np.diff(self.indptr))
        some = self.offsets[:-1][lengths > 0], self.offsets[1:][lengths > 0] - 1
        later = np.ones(len(labels), dtype=bool)
        later[some[0]] = False
        places: list[tuple[NDArray[Any], Any]]
        places = [(of_entry, self.indices * np.int64(P))]
        if s.transition_offset >= 0:
            t = np.flatnonzero(later)
            places.append((t, s.transition_offset + labels[t - 1] * P))
        if s.start_offset >= 0:
            places += [(some[0], s.start_offset), (some[1], s.end_offset)]
        # rows of the second label of a pair, or of the only one
        found = [(row + labels[t])[counts[t]] for t, row in places]
        return np.unique(np.concatenate(found))

    def require_all_pairs(self, solver: str) -> None:
        """Refuse a problem of the pairs that occur."""
        if self.seen is not None:
            raise ValueError(
                f"all_pairs: expected True for {solver}, whose steps change the weights"
                " of all labels of a word, got False; choose SDCA, or a solver of the"
                " whole set: LBFGS, AGM or BMRM"
            )

    def _only_seen(self, flat: Weights) -> Weights:
        """Padded weights with 0 for pairs that have none."""
        if self.seen is None:
            return flat
        found = aligned_zeros(len(flat), np.float64)
        found[self.seen] = flat[self.seen]
        return found

    def without_unseen(self, w: Weights) -> Weights:
        """Weights with 0 for pairs that have none; they themselves if all have one."""
        return w if self.seen is None else self.plain_weights(self.padded_weights(w))

    def split(self, w: Weights) -> tuple[Weights, Weights, Weights, Weights]:
        """W, A, start and end as views of w; zeros for what is not learnt."""
        table = self._checked(w).reshape(self.num_rows, self.num_labels)
        S, d = self.num_labels, self.num_features
        past = d + S if self.transitions else d
        A = table[d:past] if self.transitions else np.zeros((S, S))
        ends = table[past:] if self.boundaries else np.zeros((2, S))
        return table[:d], A, ends[0], ends[1]

    def padded_weights(self, w: Weights) -> Weights:
        """A copy of w in rows of whole vectors, as compiled loops take it."""
        flat = aligned_zeros(self.flat_size, np.float64)
        shape = (self.num_rows, self.num_labels)
        flat.reshape(self.num_rows, -1)[:, : shape[1]] = self._checked(w).reshape(shape)
        return self._only_seen(flat)

    def plain_weights(self, flat: Weights) -> Weights:
        """A copy of padded weights as w."""
        table = self._only_seen(flat).reshape(self.num_rows, self.row_width)
        return table[:, : self.num_labels].flatten()

    def hinges(self, w: Weights) -> NDArray[np.float64]:
        """Weighted hinge ``(n,)`` of each sequence, by one oracle call each."""
        out = np.empty(len(self))
        power = self._run(kernels.structured_hinges, w, out)
        with np.errstate(over="ignore"):
            out = self.loss_scale * np.ldexp(out, power)
        if not np.isfinite(out).all():
            raise checks.Diverged(
                "w: expected weights, and costs, for which the hinges fit float64, got"
                f" infinity at sequence {int((~np.isfinite(out)).argmax())}"
            )
        return out

    def primal(self, w: Weights, lam: float) -> float:
        """The objective at w; ``lam > 0``."""
        lam = checks.as_positive("lam", lam)
        w = self._checked(w)
        most = float(np.abs(w).max())
        with np.errstate(over="ignore"):
            half = float(lam / 2 * np.dot(w, w))
            if not np.isfinite(half):
                half = lam / 2 * most * float(np.dot(w / most, w / most)) * most
        found = float(half + self.hinges(w).mean())
        if not np.isfinite(found):
            raise checks.Diverged(
                "w: expected weights whose objective fits float64, got weights up to"
                f" {most:.3g}"
            )
        return found

    def worst(self, i: int, w: Weights) -> Corner:
        """Return the labelling of sequence i with the largest ``loss - <w, psi>``."""
        if not 0 <= i < len(self):
            raise IndexError(f"i: expected 0 to {len(self) - 1}, got {i}")
        psi, flat = aligned_zeros(self.flat_size, float), self.padded_weights(w)
        loss, hinge = np.zeros(len(self)), np.zeros(len(self))
        add_subgradients(i, i + 1, self.sequences, flat, 1.0, psi, loss, hinge)
        return Corner(self.plain_weights(psi), float(loss[i]), None)

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge at w, and a subgradient; see ``BatchProblem``."""
        return self._mean_slope(w, MAX, 1.0, 1)

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> ValueAndGradient:
        """Mean hinge smoothed from below, and its gradient; see ``BatchProblem``."""
        require_smoothing(smoothing, mu, k)
        kind, K = (ENTROPY, 1) if smoothing == "entropy" else (TOP_K, k)
        value, slope = self._mean_slope(w, kind, float(mu), K)
        # the loops smooth from above
        return value - mu * self.diameter(smoothing), slope

    def smoothed_tangent(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Weights, float]:
        """Result of ``smoothed_risk``, and the expected cost: a tangent at 0.

        ``<v, slope>`` and the expected cost are at most the risk at any v.
        """
        require_smoothing(smoothing, mu, k)
        kind, K = (ENTROPY, 1) if smoothing == "entropy" else (TOP_K, k)
        s, n = self.apart, len(self.offsets) - 1
        nodes, edges = np.empty((len(s.labels), s.P)), np.empty((n, s.S * s.P))
        kept = nodes.reshape(-1), edges
        value, slope = self._mean_slope(w, kind, float(mu), K, kept=kept)
        table = s.costs.reshape(-1, s.P)
        costs = np.where(np.isfinite(table), table, 0.0)[s.labels]
        # right labels, which nodes have less 1, cost nothing
        each = (nodes * costs).sum(1)
        cost = float(each @ np.repeat(s.scales, np.diff(self.offsets)))
        return value - mu * self.diameter(smoothing), slope, cost / n

    def has_more_outputs(self, k: int) -> bool:
        """Whether a sequence has more than k outputs."""
        longest = int(np.diff(self.offsets).max(initial=0))
        return bool(self.num_labels ** min(longest, k) > k)

    def diameter(self, smoothing: str = "entropy") -> float:
        """Largest gap between risk and smoothed risk, divided by mu."""
        require_smoothing(smoothing, 1.0, 1)
        if smoothing == "l2":
            return 0.5 * float(self.loss_scale.mean())
        words = float((self.loss_scale * np.diff(self.offsets)).mean())
        return words * float(np.log(self.num_labels))

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        s, n = self.sequences, len(self.offsets) - 1
        v, losses, hinges = np.zeros(self.flat_size), np.empty(n), np.empty(n)
        add_subgradients(0, n, s, self.padded_weights(w), scale, v, losses, hinges)
        return self.plain_weights(v), float(losses.mean()), float(hinges.mean())

    def require_range(self, lam: float) -> None:
        """Refuse features with which a step of a dual solver leaves float64.

        The curvature along one is at most ``|psi_i|^2 / (lambda n)``, and psi_i at most
        twice the norms of the words, summed.
        """
        norms, n = 2 * self.norms, len(self.offsets) - 1
        with np.errstate(over="ignore"):
            wrong = ~np.isfinite(norms * norms)
            wrong |= ~np.isfinite(norms / (lam * n) * norms)
        if wrong.any():
            i = int(wrong.argmax())
            raise ValueError(
                f"{self.called}: expected words whose squared norm over lambda n fits"
                f" float64, got norms that sum to {self.norms[i]:.3g} in sequence {i};"
                " scale the features, or raise lambda (lower C)"
            )

    def likelihood(self, w: Weights) -> ValueAndGradient:
        """Mean negative log-likelihood of the labels, and its gradient."""
        return self._mean_slope(w, ENTROPY, 1.0, 1, with_costs=False)

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """The mean loss, smoothed from above, and its gradient."""
        if loss == "likelihood":
            return self.likelihood(w)
        kind = {"hinge": MAX, "hinge-l2": TOP_K, "hinge-entropy": ENTROPY}[loss]
        if mu == 0:
            kind = MAX
        return self._mean_slope(w, kind, float(mu) or 1.0, k if kind == TOP_K else 1)

    def decode(self, w: Weights) -> NDArray[np.int32]:
        """``(positions,)``: the best labels; ties go to the lower label."""
        labels = np.empty(len(self.labels), dtype=np.int32)
        self._run(kernels.decode, w, labels, np.empty(len(self)))
        return labels

    def subset(self, rows: Any) -> "ChainProblem":
        """Return the problem of the sequences ``rows``, in that order.

        Parameters
        ----------
        rows
            Indices of sequences, or one bool for each.
        """
        chosen = np.arange(len(self))[rows]
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        if len(offsets) < 2:
            raise ValueError("rows: expected at least one sequence, got none")
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        positions = np.repeat(self.offsets[chosen], lengths) + within
        part = self._blank()
        part._keep(
            self._features().take(positions),
            self.labels[positions],
            offsets,
            self.cost,
            self.cost_scale[chosen],
            self.boundaries,
            self.loss_scale[chosen],
        )
        # of all sequences
        part.seen = self.seen
        return part

    def _mean_slope(
        self,
        w: Weights,
        kind: int,
        mu: float,
        k: int,
        with_costs: bool = True,
        kept: tuple[Weights, Weights] | None = None,
    ) -> ValueAndGradient:
        s, flat, border = self.apart, self.padded_weights(w), self.border
        if not with_costs:
            # -inf past the last label stays
            s = s._replace(costs=np.minimum(s.costs, 0.0))
        n, slope = len(s.offsets) - 1, np.zeros_like(flat)
        none, losses = np.empty(0), np.empty(n)
        nodes, edges = kept or (none, none.reshape(0, s.S * s.P))
        gradients.losses_and_gradient(
            s,
            flat[:border],
            flat[border:],
            kind,
            mu,
            k,
            kept is not None,
            slope[:border],
            slope[border:],
            nodes,
            edges,
            losses,
        )
        return float(losses.mean()), self.plain_weights(slope) / n

    def _blank(self) -> "ChainProblem":
        """A problem to be filled by ``_keep``."""
        return object.__new__(type(self))

    def _features(self) -> _rows.Rows:
        return _rows.Rows(self.indptr, self.indices, self.values, self.num_features)

    def _run(self, kernel: Any, w: Weights, *out: NDArray[Any]) -> int:
        """Fill ``out``; scores in it are to be multiplied by two to this power."""
        work = len(self.indices) * self.row_width // 8
        work += len(self.labels) * self.num_labels * self.row_width // 8
        few = self.seen is None and len(self.indices) < self.num_features
        s, flat = self._few(w) if few else (self.sequences, self.padded_weights(w))
        # scores that could overflow are those of smaller weights and costs
        size = max(_exponent(flat) + self._sizes[0], self._sizes[1])
        power = max(size - _LARGE, 0)
        if power:
            flat[:] = np.ldexp(flat, -power)
            s = s._replace(scales=np.ldexp(s.scales, -power))
        run_rows(kernel, len(self), work, s, flat, *out)
        return power

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """Exponents of two above the sum of all features, and of all costs."""
        count = len(self.values) + 3 * len(self.labels) + 1
        features = max(_exponent(self.values), 1) + count.bit_length()
        costs = _exponent(self.cost) + _exponent(self.cost_scale)
        return features, costs + count.bit_length()

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """``(n,)``: the sum over its words of the norms of their features, weighted."""
        values = self.values.astype(np.float64)
        most = float(np.abs(values).max(initial=0.0)) or 1.0
        rows = np.arange(len(self.labels))
        of_entry = np.repeat(rows, np.diff(self.indptr))
        squares = np.bincount(of_entry, (values / most) ** 2, len(rows))
        of_word = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        with np.errstate(over="ignore"):
            sums = most * np.bincount(of_word, np.sqrt(squares), len(self))
            return np.asarray(self.loss_scale * sums)

    def _few(self, w: Weights) -> tuple[kernels.Sequences, Weights]:
        """Padded weights of only those rows that entries read, a copy for each."""
        s, d, count = self.sequences, self.num_features, len(self.indices)
        table = self._checked(w).reshape(self.num_rows, s.S)
        flat = aligned_zeros((count + self.num_rows - d) * s.P, np.float64)
        rows = flat.reshape(-1, s.P)
        rows[:count, : s.S] = table[self.indices]
        rows[count:, : s.S] = table[d:]
        moved = {
            name: getattr(s, name) + (count - d) * s.P
            for name in ("transition_offset", "start_offset", "end_offset")
            if getattr(s, name) >= 0
        }
        indices = np.arange(count, dtype=np.int32)
        return s._replace(indices=indices, **moved), flat

    def _checked(self, w: Weights) -> Weights:
        w = np.ascontiguousarray(w, dtype=np.float64)
        if w.shape != (self.num_weights,):
            raise ValueError(
                f"w: expected ({self.num_weights},) weights, got {w.shape}"
            )
        return w


def _exponent(x: NDArray[Any]) -> int:
    """No number of x is larger than two to this power."""
    return int(np.frexp(np.abs(x).max(initial=0.0))[1])
