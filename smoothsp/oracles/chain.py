"""Linear-chain conditional random fields."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smoothsp.oracles._chain import summed_losses
from smoothsp.oracles._chain.buffers import POTENTIAL_NAMES, Potentials, copy_if_shared
from smoothsp.oracles._chain.checks import build_chain, validate_values
from smoothsp.oracles._chain.engine import ChainEngine, PerStepChainEngine
from smoothsp.oracles._inference import checks, double_double, rules
from smoothsp.oracles._inference.distribution import Distribution
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.op import Recomputation
from smoothsp.oracles._inference.parts import float64_if_large
from smoothsp.oracles._inference.positions import Positions
from smoothsp.oracles._inference.read_only import set_attribute
from smoothsp.oracles._inference.rounding import multiply_by_weight
from smoothsp.oracles._inference.structure import NamedTensors
from smoothsp.oracles._inference.tracing import is_compiling
from smoothsp.oracles.protocols import Summed
from smoothsp.oracles.semi_markov import SemiMarkov


class Chain(Distribution, Summed):
    """A batch of chains: potentials, and exact inference on them.

    The score of labels y is the sum, over the real positions in order, of ``start[y_1]
    + emissions[1, y_1] + transitions[y_1, y_2] + emissions[2, y_2] + ... + end[y_N]``.
    A part with score ``-inf`` is forbidden. Every result is exact, and differentiable
    in every potential.

    Parameters
    ----------
    emissions
        ``(batch, time, state)``, float32 or float64; bfloat16 and float16 are computed
        in float32, with gradients of the input's dtype. All arguments must be on one
        device, CPU or CUDA.
    transitions
        ``(state, state)``: ``transitions[i, j]`` scores state i followed by state j. Or
        ``(batch, time - 1, state, state)``: ``transitions[b, t - 1]`` scores the step
        into position t, from the real position before it.
    start, end
        ``(state,)`` scores of the first and of the last real position; zero if absent.
    lengths
        ``(batch,)`` integers from 0 to time: the number of real positions of each row,
        the first ones.
    mask
        ``(batch, time)`` bool, True where a position is real: instead of ``lengths``.
        Holes and left padding are allowed: masked positions are skipped as if deleted.
        Entries there are never read; their gradient is exactly zero. A row without a
        real position has one output, the empty one, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, a row whose outputs are all forbidden, or a potential that is
        read and is NaN or at least 2^40. Finite numbers at or below -2^40 count as
        ``-inf``. Values are not checked while ``torch.compile`` or ``torch.func``
        traces.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Chain
    >>> chain = Chain(torch.eye(2)[None], torch.tensor([[0.0, -3.0], [0.0, 0.0]]))
    >>> value, y = chain.decode()
    >>> value.tolist(), y.tolist()
    ([1.0], [[0, 0]])
    >>> chain.log_partition()
    tensor([1.9176])
    """

    _buffers: ChainEngine

    def __init__(
        self,
        emissions: Tensor,
        transitions: Tensor,
        start: Tensor | None = None,
        end: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        arguments = emissions, transitions, start, end, lengths, mask
        buffers = build_chain(*arguments)
        emission_scores, transition_scores, *start_and_end = buffers.potentials
        potentials = {"emissions": emission_scores, "transitions": transition_scores}
        if not (start is None and end is None):
            potentials |= {"start": start_and_end[0], "end": start_and_end[1]}
        self._record_versions(potentials)
        set_attribute(self, "_buffers", validate_values(buffers))

    # ``_buffers`` holds the validated potentials and positions, with their addresses.

    @property
    def _engine(self) -> ChainEngine:
        # the buffers are the engine of all ops
        return self._buffers

    @property
    def _decoding_engine(self) -> ChainEngine:
        return self._buffers

    @property
    def _likelihood_structure(self) -> "Chain":
        return self

    _gold_parts_index_potentials = True

    def _gold_parts(self, y: Tensor) -> Tensor:
        labels, _ = self._masked_labels_and_mask(y)
        checks.require_shape(
            "y", labels, tuple(self.emissions.shape[:2]), "(batch, time)"
        )
        return self._buffers.part_entries(labels.unsqueeze(1))

    @property
    def _first_potentials(self) -> Tensor:  # type: ignore[override]
        return self._buffers.potentials[0]

    _first_name = "emissions"
    _traces_methods = True

    def _with_first_potentials(self, emissions: Tensor) -> "Chain":
        _, transitions, start, end = self._buffers.potentials
        return self._from_validated((emissions, transitions, start, end))

    def _map_potentials(self, change: Callable[[Tensor], Tensor]) -> "Chain":
        emissions, transitions, start, end = self._buffers.potentials
        # callers pass maps that preserve validity, so nothing is validated again
        shared = change(emissions), change(transitions)
        return self._from_validated((*shared, change(start), change(end)))

    def _select_rows(self, rows: Tensor) -> "Chain":
        emissions, transitions, start, end = self._buffers.potentials
        row_transitions = transitions if transitions.dim() == 2 else transitions[rows]
        positions = self._buffers.positions.select(rows)
        picked = self._from_validated(
            (emissions[rows], row_transitions, start, end), positions
        )
        if is_compiling():
            # the graph reconstructs the chain by its constructor, with selected rows
            call = vars(self)["_constructor_call"]
            vars(picked)["_constructor_call"] = call.select(rows)
        return picked

    def _with_graph_tensors(self, tensors: Sequence[Tensor]) -> "Chain":
        emissions, transitions, start, end = tensors
        return self._from_validated((emissions, transitions, start, end))

    def _named_potentials(self) -> NamedTensors:
        return dict(zip(POTENTIAL_NAMES, self._buffers.potentials, strict=True))

    def _from_validated(
        self, potentials: Potentials, positions: Positions | None = None
    ) -> "Chain":
        """Chain of other potentials, not validated; same positions unless given."""
        chain = object.__new__(type(self))
        buffers = ChainEngine(potentials, positions or self._buffers.positions)
        chain.__dict__.update(self.__dict__, _buffers=buffers)
        return chain

    def _require_valid(
        self,
        argument: str,
        changed_name: str | None = None,
        added: Tensor | None = None,
    ) -> None:
        # one kernel call validates all potentials, changed or not
        set_attribute(self, "_buffers", validate_values(self._buffers, argument))

    @property
    def emissions(self) -> Float[Tensor, "batch time state"]:
        """Scores of the states at each position."""
        return self._buffers.potentials[0]

    @property
    def transitions(self) -> Float[Tensor, "*batch_step state state"]:
        """Scores of one state followed by another."""
        return self._buffers.potentials[1]

    @property
    def start(self) -> Float[Tensor, " state"]:
        """Scores of the first state; zeros if none were given."""
        return copy_if_shared(self._buffers.potentials[2])

    @property
    def end(self) -> Float[Tensor, " state"]:
        """Scores of the last state; zeros if none were given."""
        return copy_if_shared(self._buffers.potentials[3])

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """The number of real positions of each row."""
        return self._buffers.positions.lengths.clone()

    @property
    def shape(self) -> tuple[int]:
        """Shape of an output of one row."""
        return (self.emissions.shape[1],)

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: the labels of each row up to its last real position."""
        return self._buffers.positions.end_positions[:, None].clone()

    @property
    def mask(self) -> Bool[Tensor, "batch time"]:
        """True where a position is real."""
        return self._buffers.positions.mask

    def score(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Score of the labels y.

        Parameters
        ----------
        y
            Integers ``(batch, time)``, or ``(batch, k, time)`` for k outputs a row; any
            value at masked positions.

        Returns
        -------
        Tensor
            ``(batch,)`` or ``(batch, k)``; -inf where y is forbidden.

        Raises
        ------
        ValueError
            If a label at a real position is not in ``[0, state)``.
        """
        dtype = self._buffers.dtype
        return self._score_as_hi_lo(y, dtype).to_dtype(dtype)

    def _score_as_hi_lo(
        self, y: Tensor, dtype: torch.dtype, with_hi_lo: bool = False
    ) -> DoubleDouble:
        """Scores of y, ``(batch,)`` or ``(batch, k)``, with hi + lo if requested."""
        y = checks.as_labels(y, self.emissions)
        if y.dim() == 3:
            return rules.score(self._buffers, y, dtype, with_hi_lo)
        return rules.score(self._buffers, y.unsqueeze(1), dtype, with_hi_lo).squeeze(1)

    def hamming(self, y: Tensor) -> Float[Tensor, "batch time state"]:
        """Cost 1 for every state that differs from y at a real position, else 0."""
        # 1 for all states of real positions, then 0 at the labels of y
        label, mask = self._masked_labels_and_mask(y)
        cost = mask[..., None].to(self.emissions.dtype).expand_as(self.emissions)
        return cost.scatter(2, label[..., None], 0)

    def label_counts(self, y: Tensor) -> Float[Tensor, "batch state"]:
        """Number of real positions at which y uses each state."""
        # masked labels count 0 for state 0: half the time of an extra column for -1
        label, mask = self._masked_labels_and_mask(y)
        B, _, S = self.emissions.shape
        counts = self.emissions.new_zeros(B, S)
        return counts.scatter_add(1, label, mask.to(counts.dtype))

    def _masked_labels_and_mask(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Labels ``(batch, time)`` with 0 at masked positions, and the mask."""
        S = self.emissions.shape[2]
        mask = self.mask
        return checks.as_masked_labels(y, mask, S), mask

    def violation(
        self, y: Tensor, weight: Tensor | float = 1.0, cost_scale: float = 1.0
    ) -> Float[Tensor, ""]:
        """Sum of the rows' margin violations, each times its weight.

        The violation of a row is
        ``max_{y'} [score(y') + cost_scale hamming(y', y)] - score(y)``. It is never
        negative, not even by rounding. Losses call this method.
        """
        cost_scale = checks.as_nonnegative("cost_scale", cost_scale)

        # the unfused formula, for double backward and inputs that the kernel excludes
        def recompute() -> Tensor:
            chain_float64, _ = float64_if_large(self)
            augmented = chain_float64.augment(self.hamming(y) * cost_scale)
            violations = double_double.decode(augmented)[0].minus(
                double_double.score(chain_float64, y), sign=1
            )
            return _weighted_sum(violations.to(self.emissions.dtype), weight)

        recomputation = Recomputation(recompute, (y, weight))
        fused = summed_losses.violation(
            self._buffers, y, weight, recomputation, cost_scale
        )
        return recompute() if fused is None else fused

    def _smoothed_violation(
        self,
        y: Tensor,
        weight: Tensor | float,
        cost_scale: float,
        mu: float,
        k: int,
        recomputation: Recomputation,
    ) -> tuple[Tensor, Tensor | None] | None:
        """Weighted sum of smoothed margin violations, and which rows are exact.

        Smoothed by ``L2(mu, k)`` over the k best outputs, or for k = 0 by the entropy
        times mu. Expects scores up to 64 in magnitude. Returns None if no fused kernel
        applies.
        """
        args = self._buffers, y
        if k:
            return summed_losses.smoothed_violation(
                *args, weight, recomputation, cost_scale, mu, k
            )
        # the entropy-smoothed violation is a negative log-likelihood at temperature mu
        fused = summed_losses.log_likelihood(
            *args, -weight, recomputation, cost_scale, mu
        )
        return None if fused is None else (fused, None)

    def decode(self) -> tuple[Float[Tensor, " batch"], Int[Tensor, "batch time"]]:
        """Highest score, and labels that attain it: the max oracle.

        Returns
        -------
        value
            ``(batch,)``, added up in float64. Never below the score of any labels, not
            even by rounding.
        y
            ``(batch, time)`` int64, -1 at masked positions.

        Notes
        -----
        O(batch time state^2). Source: Pillutla et al., "A Smoother Way to Train
        Structured Prediction Models", algorithm 1.
        """
        dtype = self._buffers.dtype
        value, y = rules.best(self._buffers, None, dtype)
        return value.to_dtype(dtype), y

    def decode_topk(
        self, k: int
    ) -> tuple[
        Float[Tensor, "batch k"], Int[Tensor, "batch k time"], Bool[Tensor, "batch k"]
    ]:
        """The k highest scores and their labels, sorted and distinct.

        Returns
        -------
        values
            ``(batch, k)``, best first; -inf where fewer than k outputs exist.
        ys
            ``(batch, k, time)`` int64, -1 at masked positions and where not valid.
        valid
            ``(batch, k)`` bool: True where the output exists, with a score above -inf.

        Notes
        -----
        O(batch time state^2 k). Source: Pillutla et al., "A Smoother Way to Train
        Structured Prediction Models", algorithm 2.
        """
        B, T, _ = self.emissions.shape
        k = checks.as_output_count("k", k, B * T)
        dtype = self._buffers.dtype
        values, ys, valid = rules.k_best(self._buffers, k, dtype)
        return values.to_dtype(dtype), ys, valid

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable twice.

        Notes
        -----
        O(batch time state^2), and state^2 exponentials when transitions are shared.
        Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
        algorithms 3 and 9.
        """
        dtype = self._buffers.dtype
        return rules.log_partition(self._buffers, dtype).to_dtype(dtype)

    def _score_hi_lo(self, y: Tensor) -> DoubleDouble:
        return self._score_as_hi_lo(y, self._buffers.dtype, with_hi_lo=True)

    def _decode_hi_lo(self) -> tuple[DoubleDouble, Tensor]:
        # the score of y as hi + lo is exact; value carries the gradient
        value, y = self.decode()
        with torch.no_grad():
            return DoubleDouble(value, self._score_hi_lo(y).hi_lo), y

    def _decode_topk_hi_lo(self, k: int) -> tuple[DoubleDouble, Tensor, Tensor]:
        values, ys, valid = self.decode_topk(k)
        # missing outputs repeat the first, so that all labels are valid
        filled = torch.where(valid[..., None], ys, ys[:, :1])
        with torch.no_grad():
            scores = self._score_hi_lo(filled)
        return (
            DoubleDouble(values, scores.masked_fill(~valid, -torch.inf).hi_lo),
            ys,
            valid,
        )

    def _log_partition_hi_lo(self) -> DoubleDouble:
        return rules.log_partition(self._buffers, self._buffers.dtype, with_hi_lo=True)

    def marginals(self) -> Float[Tensor, "batch time state"]:
        """Probability of each state at each position, differentiable; 0 if masked."""
        return rules.marginals(self._buffers)[0]

    def edge_marginals(self) -> Float[Tensor, "batch step state state"]:
        """Joint probability of two neighbours, ``(batch, time - 1, state, state)``.

        ``[b, t - 1, i, j]`` is the probability of state i at the real position before t
        and state j at t. It is 0 where t is masked or the first real position. O(batch
        time state^2) memory.
        """
        chain = self._buffers
        return rules.marginals(
            PerStepChainEngine(chain) if chain.shared_transitions else chain
        )[1]

    def log_likelihood(
        self, y: Tensor, weight: Tensor | float = 1.0
    ) -> Float[Tensor, ""]:
        """Sum of the log-probabilities of the rows of y, each times its weight.

        Losses call this method. For a small batch, one compiled call computes the value
        and the gradients.

        Parameters
        ----------
        y
            Integers ``(batch, time)``, any value at masked positions.
        weight
            ``(batch,)``, or a number for all rows.
        """

        def recompute() -> Tensor:
            return _weighted_sum(self.log_prob(y), weight)

        recomputation = Recomputation(recompute, (y, weight))
        fused = summed_losses.log_likelihood(self._buffers, y, weight, recomputation)
        return recompute() if fused is None else fused

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Differentiable once."""
        return rules.entropy(self._buffers)

    def _as_semi_markov(self) -> SemiMarkov:
        """Semi-Markov chain of one-position segments, for methods without kernels."""
        transitions = self.transitions
        if transitions.dim() == 4:
            # semi-Markov transitions have an entry for position 0, which is never read
            transitions = torch.nn.functional.pad(transitions, (0, 0, 0, 0, 1, 0))
            transitions = transitions[:, : self.emissions.shape[1]]
        scores = self.emissions[:, :, None], transitions, self.start, self.end
        return SemiMarkov(*scores, mask=self.mask)

    def max_marginals(self) -> Float[Tensor, "batch time state"]:
        """Highest score of labels with each state at each position.

        -inf where there are none, and at masked positions. Not differentiable.
        """
        return self._as_semi_markov().max_marginals()[:, :, 0]

    def _marginals(self) -> NamedTensors:
        return dict(zip(POTENTIAL_NAMES, rules.marginals(self._buffers), strict=True))

    def _has_same_outputs(self, other: "Chain") -> bool:
        return self.mask.equal(other.mask)

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        replace: bool = True,
    ) -> Int[Tensor, "batch n time"]:
        """Independent samples, ``(batch, n, time)`` int64; -1 at masked positions.

        With ``replace=False`` the samples of a row are distinct: each is drawn from the
        outputs that were not drawn before it. If a row has fewer than n outputs, the
        remaining samples are -1 throughout.
        """
        B, T, _ = self.emissions.shape
        # 2 B T numbers per sample: the labels and the uniforms of inverse-CDF sampling
        n = checks.as_output_count("n", n, 2 * B * T, sampled=True)
        generator = checks.as_generator(generator)
        # distinct samples need a circuit, of which the semi-Markov chain has one
        if not checks.as_flag("replace", replace):
            return self._as_semi_markov().sample(n, generator, replace=False)
        device = self.emissions.device
        uniforms = torch.rand(
            B, n, T, generator=generator, dtype=torch.float64, device=device
        )
        return rules.sample(self._buffers, uniforms)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        # allowed potentials become 0, forbidden ones stay -inf: Z counts the outputs
        flat = self._map_potentials(
            lambda x: torch.where(x.detach() > -torch.inf, 0.0, x)
        )
        return flat.log_partition()


def _weighted_sum(values: Tensor, weight: Tensor | float) -> Tensor:
    """Scalar ``sum_b weight_b values_b``; rows of weight 0 add 0, even if infinite."""
    if isinstance(weight, Tensor):
        weight = weight.to(values.dtype)
    return multiply_by_weight(values, weight).sum()
