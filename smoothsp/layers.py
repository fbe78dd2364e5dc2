"""Modules that own potentials."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from smoothsp.constraints import Constraints
from smoothsp.losses import CRFLoss
from smoothsp.oracles import Chain
from smoothsp.oracles._questions import checks


class Decoding(NamedTuple):
    """The best labels of each row."""

    tags: Tensor
    """``(batch, time)`` int64."""
    scores: Tensor
    """``(batch,)``."""


class TopKDecoding(NamedTuple):
    """The k best labels of each row, best first."""

    tags: Tensor
    """``(batch, k, time)`` int64."""
    scores: Tensor
    """``(batch, k)``, -inf where not valid."""
    valid: Tensor
    """``(batch, k)`` bool: does this output exist?"""


class LinearChain(nn.Module):
    """A linear-chain head: owns transition scores, takes emissions.

    Parameters
    ----------
    num_tags
        Number of states.
    constraints
        Allowed starts, moves and ends, as ``constraints.bio(labels)`` makes them:
        honoured in training as in decoding.

    Attributes
    ----------
    transitions
        ``(num_tags, num_tags)``, ``[i, j]`` scores tag i followed by tag j.
    start_transitions, end_transitions
        ``(num_tags,)``.

    Notes
    -----
    The three parameters are the whole state dict, so that one saved by a CRF layer with
    these names loads as it is. Emissions are ``(batch, time, num_tags)``, masks
    ``(batch, time)`` bool with holes and left padding allowed, as in ``oracles.Chain``.

    Examples
    --------
    >>> import torch
    >>> from smoothsp import LinearChain
    >>> head = LinearChain(num_tags=3)
    >>> emissions = torch.zeros(1, 4, 3, requires_grad=True)
    >>> head.loss(emissions, torch.tensor([[0, 1, 2, 0]])).backward()
    >>> tags, scores, valid = head.decode(emissions, top_k=5)
    >>> tags.shape, valid.all().item()
    (torch.Size([1, 5, 4]), True)
    """

    allowed_start: Tensor | None
    allowed_moves: Tensor | None
    allowed_end: Tensor | None

    def __init__(self, num_tags: int, constraints: Constraints | None = None) -> None:
        super().__init__()
        if isinstance(num_tags, bool) or not isinstance(num_tags, int):
            raise TypeError(f"num_tags: expected an int, got {type(num_tags).__name__}")
        if num_tags < 1:
            raise ValueError(f"num_tags: expected at least 1, got {num_tags}")
        if constraints is not None and len(constraints.start) != num_tags:
            raise ValueError(
                f"constraints: expected {num_tags} tags to match num_tags, "
                f"got {len(constraints.start)}"
            )
        self.num_tags = num_tags
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        start, moves, end = constraints or (None, None, None)
        self.register_buffer("allowed_start", start, persistent=False)
        self.register_buffer("allowed_moves", moves, persistent=False)
        self.register_buffer("allowed_end", end, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all scores from the uniform law on [-0.1, 0.1]."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def extra_repr(self) -> str:
        """Arguments, for ``print``."""
        constrained = self.allowed_moves is not None
        return f"num_tags={self.num_tags}, constrained={constrained}"

    def structure(self, emissions: Tensor, mask: Tensor | None = None) -> Chain:
        """The chain of the given emissions and of this head's scores."""
        transitions = _forbid(self.transitions, self.allowed_moves)
        start = _forbid(self.start_transitions, self.allowed_start)
        end = _forbid(self.end_transitions, self.allowed_end)
        if emissions.dtype == torch.float64:
            transitions, start, end = transitions.double(), start.double(), end.double()
        return Chain(emissions, transitions, start, end, mask=mask)

    def loss(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        loss: nn.Module | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Loss of the gold tags.

        Parameters
        ----------
        emissions
            ``(batch, time, num_tags)``.
        tags
            ``(batch, time)`` integers; anything at masked positions, -100 included.
        mask
            ``(batch, time)`` bool; all real if absent.
        loss
            A loss over structures, such as ``StructuralHinge()``; ``CRFLoss()`` if
            absent.
        weight
            ``(batch,)`` weight of each example.

        Raises
        ------
        ValueError
            If gold tags break the constraints: names the row and the step.
        """
        chain = self.structure(emissions, mask)
        criterion = CRFLoss() if loss is None else loss
        value: Tensor = criterion(chain, tags, weight)
        if self.allowed_moves is not None and not torch.compiler.is_compiling():
            self._check_gold(value, tags, chain)
        return value

    def decode(
        self,
        emissions: Tensor,
        mask: Tensor | None = None,
        top_k: int | None = None,
        pad_value: int = -1,
    ) -> Decoding | TopKDecoding:
        """Best tags, or the ``top_k`` best, with scores; no gradient is recorded.

        ``pad_value`` stands at masked positions, and in outputs that do not exist.
        """
        with torch.no_grad():
            chain = self.structure(emissions, mask)
            if top_k is None:
                scores, tags = chain.decode()
                return Decoding(tags.masked_fill(tags < 0, pad_value), scores)
            scores, tags, valid = chain.decode_topk(top_k)
            return TopKDecoding(tags.masked_fill(tags < 0, pad_value), scores, valid)

    def marginals(
        self, emissions: Tensor, mask: Tensor | None = None
    ) -> Float[Tensor, "batch time tag"]:
        """Chance of each tag at each position; 0 at masked ones."""
        return self.structure(emissions, mask).marginals()

    def _check_gold(
        self, value: Tensor, tags: Int[Tensor, "batch time"], chain: Chain
    ) -> None:
        """Forbidden gold tags make the loss infinite: say where."""
        if not checks.values_are_there() or bool(value.detach().isfinite().all()):
            return
        start, moves, end = self.allowed_start, self.allowed_moves, self.allowed_end
        if start is None or moves is None or end is None:
            return
        for row, (gold, real) in enumerate(zip(tags, chain.mask, strict=True)):
            steps = real.nonzero().squeeze(1).tolist()
            path = gold[real].tolist()
            where = f"at row {row}, step"
            for n, (step, tag) in enumerate(zip(steps, path, strict=True)):
                if n == 0 and not start[tag]:
                    raise ValueError(
                        f"tags: the constraints forbid to start with {tag} "
                        f"{where} {step}"
                    )
                if n > 0 and not moves[path[n - 1], tag]:
                    raise ValueError(
                        f"tags: the constraints forbid {tag} after {path[n - 1]} "
                        f"{where} {step}; convert the tags to the scheme of the "
                        "constraints"
                    )
            if path and not end[path[-1]]:
                raise ValueError(
                    f"tags: the constraints forbid to end with {path[-1]} "
                    f"{where} {steps[-1]}"
                )


def _forbid(scores: Tensor, allowed: Tensor | None) -> Tensor:
    return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
