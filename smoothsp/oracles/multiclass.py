"""One choice from a list of candidates."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smoothsp.oracles._inference import checks, double_double, score_values
from smoothsp.oracles._inference.distribution import Distribution
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.logsumexp import logsumexp, softmax_entropy
from smoothsp.oracles._inference.read_only import set_attribute
from smoothsp.oracles._inference.row_losses import add_hamming
from smoothsp.oracles._inference.tracing import is_eager
from smoothsp.oracles._searches.candidate_engine import CandidateEngine


class Multiclass(Distribution):
    """A batch of choices among scored candidates: classes, boxes, documents.

    Parameters
    ----------
    scores
        ``(batch, candidate)``, float32 or float64; bfloat16 and float16 are computed in
        float32. A part with score ``-inf`` is forbidden. On the CPU or on a CUDA
        device.
    mask
        ``(batch, candidate)`` bool, True where a candidate is real. Scores where it is
        False are never read; their gradient is exactly zero. A row without candidates
        has one output, written -1, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf at a real candidate, or a row whose candidates
        are all forbidden. Values are not checked while ``torch.compile`` or
        ``torch.func`` traces.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Multiclass
    >>> value, y = Multiclass(torch.tensor([[1.0, 3.0, 2.0]])).decode()
    >>> value.tolist(), y.tolist()
    ([3.0], [1])
    """

    scores: Tensor
    mask: Tensor
    row_attributes = ("mask",)
    _masked = False
    _traces_methods = True

    def __init__(self, scores: Tensor, mask: Tensor | None = None) -> None:
        scores = checks.as_potentials("scores", scores)
        self._record_versions({"scores": scores})
        if scores.dim() != 2 or (scores.shape[1] < 1 and mask is None):
            raise ValueError(
                "scores: expected (batch, candidate) with at least one candidate, got "
                f"{tuple(scores.shape)}; for rows without candidates pass a mask"
            )
        if mask is None:
            mask = torch.ones_like(scores, dtype=torch.bool)
        else:
            set_attribute(self, "_masked", True)
            form, size = "(batch, candidate)", tuple(scores.shape)
            mask = checks.as_bool_mask("mask", mask, size, form, scores.device)
            mask = mask.clone()
            scores = torch.where(mask, scores, -torch.inf)
        set_attribute(self, "mask", mask)
        self._set_potentials({"scores": scores})
        self._require_valid("scores")

    def _with_first_potentials(self, main: Tensor) -> "Multiclass":
        # costs may have other values in the padding: they must not enter the softmax
        if self._masked:
            main = torch.where(self.mask, main, -torch.inf)
        return super()._with_first_potentials(main)

    @property
    def _engine(self) -> CandidateEngine:
        return CandidateEngine(self)

    @property
    def _decoding_engine(self) -> CandidateEngine:
        return self._engine

    @property
    def _likelihood_structure(self) -> "Multiclass":
        return self

    _gold_parts_index_potentials = True

    def _gold_parts(self, y: Tensor) -> Tensor:
        return self._labels_per_row(y)[:, None]

    def _augment_and_gold_parts(
        self, y: Tensor, scale: float
    ) -> tuple["Multiclass", Tensor] | None:
        if not self._inherits_costs(Multiclass):
            return None
        used = self._gold_parts(y)
        usable = self.mask if self._masked else None
        return self._with_augmented_potentials(
            add_hamming(self.scores, usable, used, scale)
        ), used

    def _first_infeasible_row(self) -> int:
        if not self._masked:
            return score_values.first_forbidden_row(self.scores)
        infeasible = (self.scores.amax(1) == -torch.inf) & self.mask.any(1)
        return int(infeasible.int().argmax()) if bool(infeasible.any()) else -1

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: 1, or 0 for rows without candidates."""
        return self.mask.any(1).long()

    @property
    def _scores_or_zeros(self) -> Tensor:
        """Scores with zeros in rows without candidates, so that softmax is not NaN.

        Has at least one column, so that reductions are defined.
        """
        if not self._masked:
            return self.scores
        scores = self.scores.masked_fill(~self.mask.any(1, keepdim=True), 0)
        return scores if scores.shape[1] else torch.nn.functional.pad(scores, (0, 1))

    def _checked_candidates(self, y: Tensor) -> Tensor:
        """Return y as int64 ``(batch,)`` or ``(batch, k)``; raise for padding."""
        mask = (
            self.mask if self.mask.shape[1] else self.mask.new_zeros(len(self.mask), 1)
        )
        return checks.as_candidates(y, mask)

    def score(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Scores of the candidates y: ``(batch,)``, or ``(batch, k)`` for k per row.

        Raises
        ------
        ValueError
            If y is not a real candidate of its row.
        """
        y = self._checked_candidates(y)
        candidates = y if y.dim() == 2 else y[:, None]
        has_candidates = self.mask.any(1, keepdim=True)
        picked = self._scores_or_zeros.gather(
            1, candidates.masked_fill(~has_candidates, 0)
        )
        return picked if y.dim() == 2 else picked.squeeze(1)

    def hamming(self, y: Tensor) -> Float[Tensor, "batch candidate"]:
        """Cost 1 for every real candidate but y, else 0."""
        label = self._labels_per_row(y)
        cost = self.mask.to(self.scores.dtype)
        # the cost of a row without candidates is 0 everywhere, so y = -1 may be clamped
        return cost.scatter(1, label.clamp(min=0), 0) if cost.shape[1] else cost

    def _labels_per_row(self, y: Tensor) -> Tensor:
        label = self._checked_candidates(y)
        checks.require_shape("y", label, (len(self.mask),), "(batch,)")
        return label.masked_fill(~self.mask.any(1), -1)[:, None]

    @property
    def _label_counts_width(self) -> int:
        return self.scores.shape[1]

    def decode(self) -> tuple[Float[Tensor, " batch"], Int[Tensor, " batch"]]:
        """Highest score, and a candidate that attains it; -1 where there is none."""
        scores = self._scores_or_zeros
        y = scores.argmax(1)
        value = scores.gather(1, y[:, None]).squeeze(1)
        return value, self._mask_empty_rows(y)

    def _mask_empty_rows(self, y: Tensor) -> Tensor:
        """Candidates y ``(batch,)`` with -1 in rows without candidates."""
        return y.masked_fill(~self.mask.any(1), -1) if self._masked else y

    def decode_topk(
        self, k: int
    ) -> tuple[
        Float[Tensor, "batch k"], Int[Tensor, "batch k"], Bool[Tensor, "batch k"]
    ]:
        """The k highest scores and their candidates, sorted and distinct.

        Returns
        -------
        values
            ``(batch, k)``, best first; -inf where fewer than k candidates exist.
        ys
            ``(batch, k)`` int64, -1 where not valid.
        valid
            ``(batch, k)`` bool: True where the output exists, with a score above -inf.
        """
        B, M = self.scores.shape
        k = checks.as_output_count("k", k, B)
        # stable, so that the k best are a prefix of the k + 1 best under ties
        values, ys = self.scores.sort(dim=1, descending=True, stable=True)
        values = torch.nn.functional.pad(values, (0, max(0, k - M)), value=-torch.inf)
        ys = torch.nn.functional.pad(ys, (0, max(0, k - M)))[:, :k]
        # a row without candidates has one output: the empty one
        first = torch.arange(k, device=values.device) == 0
        empty = ~self.mask.any(1, keepdim=True) & first
        values = values[:, :k].masked_fill(empty, 0)
        valid = values > -torch.inf
        # masked even where the value is -inf already: no gradient to missing outputs
        values = values.masked_fill(~valid, -torch.inf)
        return values, ys.masked_fill(~valid | empty, -1), valid

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score); its gradient is the marginals."""
        return logsumexp(self._scores_or_zeros) * self.mask.any(1)

    def marginals(self, name: str = "scores") -> Float[Tensor, "batch candidate"]:
        """Probability of each candidate."""
        marginals = self._scores_or_zeros.softmax(1)[:, : self.mask.shape[1]]
        return marginals * self.mask.any(1, keepdim=True)

    def log_prob(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Log-probability of y: ``score(y) - log_partition()``, at most 0.

        Raises
        ------
        ValueError
            If y is not a real candidate of its row.
        """
        y = self._checked_candidates(y)
        candidates = y if y.dim() == 2 else y[:, None]
        has_candidates = self.mask.any(1, keepdim=True)
        # log_softmax, not score - log_partition: never above 0 by rounding
        log_probs = self._scores_or_zeros.log_softmax(1)
        candidates = candidates.masked_fill(~has_candidates, 0)
        picked = log_probs.gather(1, candidates).masked_fill(~has_candidates, 0)
        return picked if y.dim() == 2 else picked.squeeze(1)

    def _score_hi_lo(self, y: Tensor) -> DoubleDouble:
        return _with_hi_lo(self.score(y))

    def _decode_hi_lo(self) -> tuple[DoubleDouble, Tensor]:
        value, y = self.decode()
        return _with_hi_lo(value), y

    def _decode_topk_hi_lo(self, k: int) -> tuple[DoubleDouble, Tensor, Tensor]:
        values, ys, valid = self.decode_topk(k)
        return _with_hi_lo(values), ys, valid

    def _log_partition_hi_lo(self) -> DoubleDouble:
        if not is_eager():
            return DoubleDouble(
                logsumexp(self._scores_or_zeros.double()) * self.mask.any(1)
            )
        scores = self._scores_or_zeros.detach()
        top = scores.amax(1)
        # hi is the maximum, lo = log sum exp(score - maximum)
        shifted_log_partition = logsumexp(scores - top[:, None])
        hi_lo = torch.stack([top.double(), shifted_log_partition.double()], -1)
        return DoubleDouble(
            self.log_partition(), hi_lo * self.mask.any(1, keepdim=True)
        )

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the choice, in nats."""
        return softmax_entropy(self._scores_or_zeros) * self.mask.any(1)

    def max_marginals(self) -> Float[Tensor, "batch candidate"]:
        """The scores, -inf where there is no candidate. Not differentiable."""
        return self.scores.detach().clone()

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        replace: bool = True,
    ) -> Int[Tensor, "batch n"]:
        """Independent samples, ``(batch, n)`` int64; -1 where there is no candidate.

        With ``replace=False`` the samples of a row are distinct. Each is drawn from the
        outputs that were not drawn before it, by the order of scores with independent
        Gumbel noise. Once all are drawn, samples are -1.

        Source: Kool, van Hoof and Welling, "Stochastic Beams and Where to Find Them"
        (2019), section 2.3.
        """
        B, M = self.scores.shape
        n = checks.as_output_count("n", n, B, sampled=True)
        generator = checks.as_generator(generator)
        if not checks.as_flag("replace", replace):
            noise = torch.empty_like(self.scores.detach(), dtype=torch.float64)
            noise = -noise.exponential_(generator=generator).log()
            # Gumbel top-k: sorting perturbed scores samples without replacement
            perturbed, order = (self.scores.detach() + noise).sort(1, descending=True)
            order = order.masked_fill(perturbed == -torch.inf, -1)[:, :n]
            return torch.nn.functional.pad(order, (0, max(n - M, 0)), value=-1)
        if B == 0:
            return self.mask.new_empty((0, n), dtype=torch.int64)
        probs = self._scores_or_zeros.detach().double().softmax(1)
        samples = torch.multinomial(probs, n, replacement=True, generator=generator)
        return samples.masked_fill(~self.mask.any(1, keepdim=True), -1)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of candidates that are not forbidden."""
        allowed = (self.scores > -torch.inf).sum(1).clamp(min=1)
        return allowed.to(self.scores.dtype).log()


def _with_hi_lo(value: Tensor) -> DoubleDouble:
    """Wrap scores of one entry, which are exact: lo is 0."""
    return DoubleDouble(value, double_double.as_hi_lo(value))
