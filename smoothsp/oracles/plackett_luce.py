"""Plackett-Luce distributions over rankings."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.structure import Potentials

# Replaces -inf: exp underflows to 0 beside any score, and derivatives are not NaN.
_NEGLIGIBLE = -1e30


class PlackettLuce(Potentials):
    r"""A batch of distributions over rankings, by choice among remaining items.

    .. math:: p(y) = \prod_t \frac{\exp \mathrm{scores}[y_t]}
        {\sum_{i \notin \{y_1, \dots, y_{t - 1}\}} \exp \mathrm{scores}[i]}

    The score of a ranking is its log-probability. An item with score ``-inf`` is in no
    ranking. Every result is exact, and differentiable in the scores.

    Parameters
    ----------
    scores
        ``(batch, N)``, float32 or float64; bfloat16 and float16 are computed in
        float32. Adding a number to a row changes nothing.
    places
        Number of items of an output, from the first place on (top-k rankings). All
        items if absent, or if there are fewer.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, or NaN or +inf.

    Notes
    -----
    An output is ``(batch, places)``: the items from the first place on, -1 after the
    last one of the row. A row whose items are all forbidden has one output, the empty
    ranking. ``log_prob`` also accepts prefixes of rankings.

    ``decode`` is O(N log N), ``log_prob`` O(N), each of the k best O(places N log N).
    The log-probability is not a sum over parts, so there is no ``augment``, and losses
    that need it raise an error. Train with ``CRFLoss`` (maximum likelihood) or with
    ``MinimumRisk`` with a function of rankings as cost. On the CPU and on CUDA devices.

    Source: Plackett, "The Analysis of Permutations" (1975), model 1; Yellott, "The
    Relationship between Luce's Choice Axiom, Thurstone's Theory of Comparative
    Judgment, and the Double Exponential Distribution" (1977), theorem 5, for samples;
    Lawler, "A Procedure for Computing the K Best Solutions to Discrete Optimization
    Problems" (1972), for the k best.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import PlackettLuce
    >>> rankings = PlackettLuce(torch.tensor([[0.0, 2.0, 1.0]]))
    >>> rankings.decode()[1].tolist()
    [[1, 2, 0]]
    >>> first = torch.tensor([[1]])  # item 1 comes first
    >>> round(rankings.log_prob(first).exp().item(), 4)
    0.6652
    """

    scores: Tensor
    places: int
    _traces_methods = True

    def __init__(self, scores: Tensor, places: int | None = None) -> None:
        scores = checks.as_potentials("scores", scores)
        self._record_versions({"scores": scores})
        if scores.dim() != 2:
            raise ValueError(f"scores: expected (batch, N), got {tuple(scores.shape)}")
        N = scores.shape[1]
        max_length = N if places is None else checks.as_positive_int("places", places)
        self.places = min(max_length, N)
        self._set_potentials({"scores": scores})
        self._require_valid("scores")

    def _can_be_infeasible(self, name: str) -> bool:
        # without allowed items the empty ranking is the only output
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an output of one row."""
        return (self.places,)

    @property
    def _num_items(self) -> Tensor:
        """Number of items that each row may rank."""
        return (self.scores.detach() > -torch.inf).sum(1)

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of items of an output."""
        return self._num_items.clamp(max=self.places)

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: ``lengths``, with an axis for the one axis of an output."""
        return self.lengths[:, None]

    def _labels_per_row(self, y: Tensor) -> Tensor:
        y_with_k, has_k = self._with_k_axis(y)
        if has_k:
            raise ValueError(
                f"y: expected one output per row, (batch, T), got {tuple(y.shape)}"
            )
        return y_with_k[:, 0]

    @property
    def _label_counts_width(self) -> int:
        return self.scores.shape[1]

    # Probabilities --------------------------------------------------------------

    def _with_k_axis(self, y: Tensor) -> tuple[Tensor, bool]:
        """Validate rankings or prefixes; return ``(batch, k, T)``, and if y has k."""
        y = checks.as_int64("y", y, self.scores.device)
        (B, N), lacks_k = self.scores.shape, y.dim() == 2
        y_with_k = y[:, None] if lacks_k else y
        if y_with_k.dim() != 3 or len(y_with_k) != B or y_with_k.shape[2] > N:
            raise ValueError(
                f"y: expected ({B}, T) or ({B}, k, T), with T at most {N}, got "
                f"{tuple(y.shape)}"
            )
        if not checks.has_concrete_values():
            return y_with_k, not lacks_k
        is_item = (y_with_k >= 0) & (y_with_k < N)
        item = y_with_k.clamp(0, max(N - 1, 0))
        is_invalid = ~(is_item | (y_with_k == -1)).all(2)
        if N:
            scores = self.scores.detach()[:, None].expand(-1, y_with_k.shape[1], -1)
            is_invalid |= (is_item & (scores.gather(2, item) == -torch.inf)).any(2)
        # no items after a -1, and no item twice: equal neighbours after sorting
        is_invalid |= (is_item[..., 1:] & ~is_item[..., :-1]).any(2)
        sorted_items = y_with_k.sort(2).values
        is_invalid |= (
            (sorted_items[..., 1:] == sorted_items[..., :-1])
            & (sorted_items[..., 1:] >= 0)
        ).any(2)
        if bool(is_invalid.any()):
            b, k = is_invalid.nonzero()[0].tolist()
            raise ValueError(
                "y: expected items that are allowed, each once, and -1 after the last "
                f"one, got {y_with_k[b, k].tolist()} at row {b}"
            )
        return y_with_k, not lacks_k

    def log_prob(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Log-probability that the ranking is y, or begins with y.

        Parameters
        ----------
        y
            ``(batch, T)`` or ``(batch, k, T)`` items in order, of any T up to N; -1
            after the last one.
        """
        y_with_k, has_k = self._with_k_axis(y)
        (B, N), k, T = self.scores.shape, y_with_k.shape[1], y_with_k.shape[2]
        real = y_with_k >= 0
        if not T:
            value = self.scores.sum(1, keepdim=True).masked_fill(real.any(), 0)
            value = torch.zeros_like(value).expand(B, k)
            return value if has_k else value.squeeze(1)
        # order all items by rank: those of y first, then the rest, all with rank N
        rank_of_item = y_with_k.new_full((B, k, N + 1), N)
        rank = torch.arange(T, device=y_with_k.device).expand(B, k, T)
        rank_of_item = rank_of_item.scatter(2, torch.where(real, y_with_k, N), rank)[
            ..., :N
        ]
        value = self._prefix_log_prob(rank_of_item.argsort(dim=2, stable=True), T, real)
        return value if has_k else value.squeeze(1)

    score = log_prob

    def _prefix_log_prob(self, order: Tensor, T: int, real: Tensor) -> Tensor:
        """Log-probabilities ``(batch, k)`` of the first T items of ``order``.

        ``order (batch, k, N)`` holds all items; ``real`` marks the ranks that count.
        """
        scores_float64 = self.scores.double().clamp(min=_NEGLIGIBLE)
        scores = scores_float64[:, None].expand(order.shape).gather(2, order)
        # log of the sum over items not yet ranked: a reversed cumulative logsumexp
        log_remaining = scores.flip(2).logcumsumexp(2).flip(2)
        log_conditionals = (scores - log_remaining)[..., :T]
        return log_conditionals.masked_fill(~real, 0).sum(2).to(self.scores.dtype)

    # Rankings -------------------------------------------------------------------

    def _rank_items(self, scores: Tensor) -> Tensor:
        """Items by decreasing score, ``(..., places)``, -1 after the last allowed."""
        values, items = scores.sort(dim=-1, descending=True, stable=True)
        return items.masked_fill(values == -torch.inf, -1)[..., : self.places]

    def decode(self) -> tuple[Float[Tensor, " batch"], Int[Tensor, "batch places"]]:
        """Log-probability of the most probable ranking, and the ranking.

        Items are sorted by decreasing score, up to ``places``.
        """
        y = self._rank_items(self.scores.detach())
        return self.log_prob(y), y

    def decode_topk(
        self, k: int
    ) -> tuple[
        Float[Tensor, "batch k"],
        Int[Tensor, "batch k places"],
        Bool[Tensor, "batch k"],
    ]:
        """The k most probable rankings, sorted and distinct.

        Returns
        -------
        values
            ``(batch, k)`` log-probabilities, best first; -inf where fewer exist.
        ys
            ``(batch, k, places)``, -1 where there is no item.
        valid
            ``(batch, k)`` bool: True where the ranking exists.
        """
        B, N = self.scores.shape
        k = checks.as_output_count("k", k, B * (1 + N))
        with torch.no_grad():
            ys, valid = self._search_k_best_outputs(k)
        filled = torch.where(valid[..., None], ys, ys[:, :1])
        values = self.log_prob(filled).masked_fill(~valid, -torch.inf)
        return values, ys.masked_fill(~valid[..., None], -1), valid

    def _search_k_best_outputs(self, k: int) -> tuple[Tensor, Tensor]:
        """The k best rankings ``(batch, k, places)``, and which of them exist.

        Lawler's partition: a child of a ranking keeps a prefix, takes the next worse
        remaining item at one rank, and sorts the rest by score. Ranks before the
        parent's last change stay fixed. So each ranking but the best has exactly one
        parent, which is at least as probable.
        """
        (B, N), P, device = self.scores.shape, self.places, self.scores.device
        sorted_ = self.scores.sort(dim=1, descending=True, stable=True)
        ranked = PlackettLuce(sorted_.values.double(), max(P, 1))
        items, length = self._num_items[:, None], self.lengths[:, None]
        rank_index, rank = (
            torch.arange(P, device=device),
            torch.arange(N, device=device),
        )
        # candidates: order of all items by rank in the best one, rank of the last
        # change, log-probability
        pool = rank.expand(B, 1, N)
        changed = torch.zeros(B, 1, dtype=torch.int64, device=device)
        value = self.scores.new_zeros(B, 1, dtype=torch.float64)
        row = torch.arange(B, device=device)
        listed, valid = [], []
        for num_left in range(k - 1, -1, -1):
            best, best_index = value.max(1)
            order, last_changed = pool[row, best_index], changed[row, best_index]
            listed.append(order)
            valid.append(best > -torch.inf)
            value[row, best_index] = -torch.inf
            if not num_left or not P:
                continue
            # next worse item for each rank, among those ranked behind it
            is_worse = (rank > rank_index[:, None]) & (
                order[:, None] > order[:, :P, None]
            )
            next_ = torch.where(is_worse, order[:, None], N).amin(2)
            is_child = (
                (next_ < items)
                & (rank_index >= last_changed[:, None])
                & (rank_index < length)
            )
            # sorting by these keys gives the child: prefix, the item, then the rest
            sort_keys = torch.where(
                rank < rank_index[:, None], rank - 2 * N, order[:, None]
            )
            sort_keys = torch.where(order[:, None] == next_[..., None], -1, sort_keys)
            orders = order[:, None].expand(B, P, N).gather(2, sort_keys.argsort(2))
            real = (rank_index < length)[:, None].expand(B, P, P)
            values = ranked._prefix_log_prob(orders, P, real)
            values = values.masked_fill(~(is_child & valid[-1][:, None]), -torch.inf)
            value = torch.cat([value, values], 1)
            pool = torch.cat([pool, orders], 1)
            changed = torch.cat([changed, rank_index.expand(B, P)], 1)
            # only the best num_left candidates can still be listed
            value, pool_index = value.topk(min(num_left, value.shape[1]), 1)
            changed = changed.gather(1, pool_index)
            pool = pool.gather(1, pool_index[..., None].expand(*pool_index.shape, N))
        orders = torch.stack(listed, 1)[..., :P]
        real = (rank_index < length)[:, None]
        ranks = orders.flatten(1)
        ys = sorted_.indices.gather(1, ranks) if N else ranks
        return ys.reshape(orders.shape).masked_fill(~real, -1), torch.stack(valid, 1)

    def sample(
        self, n: int, generator: torch.Generator | None = None
    ) -> Int[Tensor, "batch n places"]:
        """Independent rankings, sorted by decreasing score plus Gumbel noise."""
        B, N = self.scores.shape
        n = checks.as_output_count("n", n, B * (1 + N), sampled=True)
        generator = checks.as_generator(generator)
        # Yellott (1977): the order of scores plus Gumbel noise is a sample
        scores = self.scores.detach().double()[:, None].expand(B, n, N)
        noise = torch.empty_like(scores, memory_format=torch.contiguous_format)
        return self._rank_items(scores - noise.exponential_(generator=generator).log())
