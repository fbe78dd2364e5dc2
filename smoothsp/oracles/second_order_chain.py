"""Second-order linear chains."""

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, Items, topology
from smoothsp.oracles._circuits.masked_sequences import MaskedSequences
from smoothsp.oracles._inference import checks


class SecondOrderChain(MaskedSequences):
    r"""A batch of second-order chains: each transition scores three adjacent labels.

    .. math:: s(y) = \sum_t \mathrm{emissions}[t, y_t]
        + \sum_{t \ge 2} \mathrm{transitions}[y_{t-2}, y_{t-1}, y_t]

    A part with score ``-inf`` is forbidden. Every result is exact, and differentiable
    in every potential.

    Parameters
    ----------
    emissions
        ``(batch, time, state)``, float32 or float64; bfloat16 and float16 are computed
        in float32. Add scores of the first and last label here.
    transitions
        ``(state, state, state)``: ``[i, j, k]`` scores i, then j, then k.
    lengths
        ``(batch,)`` integers from 0 to time: the number of real positions of each row,
        the first ones. Entries beyond are never read; their gradient is exactly zero.
    mask
        ``(batch, time)`` bool, True where a position is real: instead of ``lengths``.
        Masked positions are skipped as if deleted. A row without a real position has
        one output, the empty one, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row whose outputs
        are all forbidden. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, time)``: a label for each position, -1 at masked ones.
    O(batch time state^3).

    Source: Thede and Harper, "A Second-Order Hidden Markov Model for Part-of-Speech
    Tagging" (1999), section 3: states are pairs of labels.

    Examples
    --------
    Labels that alternate, each for two positions:

    >>> import torch
    >>> from smoothsp.oracles import SecondOrderChain
    >>> transitions = torch.full((2, 2, 2), -torch.inf)
    >>> transitions[0, 0, 1] = transitions[0, 1, 1] = 0.0
    >>> transitions[1, 1, 0] = transitions[1, 0, 0] = 0.0
    >>> emissions = torch.tensor([[[0.0, 0], [1, 0], [0, 9], [0, 0], [0, 1]]])
    >>> value, y = SecondOrderChain(emissions, transitions).decode()
    >>> value.tolist(), y.tolist()
    ([10.0], [[0, 0, 1, 1, 0]])
    """

    emissions: Tensor
    transitions: Tensor
    output_description = "a label at each real position"

    def __init__(
        self,
        emissions: Tensor,
        transitions: Tensor,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        emissions = checks.as_potentials("emissions", emissions)
        if emissions.dim() != 3 or not emissions.shape[2]:
            raise ValueError(
                "emissions: expected (batch, time, state) with at least one state, got "
                f"{tuple(emissions.shape)}"
            )
        _, T, S = emissions.shape
        transitions = checks.as_potentials("transitions", transitions)
        checks.require_same_dtype("transitions", transitions, "emissions", emissions)
        checks.require_shape(
            "transitions", transitions, (S, S, S), "(state, state, state)"
        )
        size = self._count_real_positions(emissions, lengths, mask)
        built = topology(_build_second_order_chain, T, S)
        super().__init__(
            built,
            {"emissions": emissions},
            {"transitions": transitions},
            roots=built.root(size),
            lengths=size,
            shape=(T,),
        )

    def leaves(self) -> tuple[Tensor, Tensor]:
        """Emissions of real positions first, then transitions."""
        return self._pack(self.emissions), self.transitions

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of emissions and transitions."""
        T, S = self.emissions.shape[1:]
        emissions = super().leaves_used(labels)
        i, j, k = (labels[..., t : max(T - 2, 0) + t] for t in range(3))
        # a transition needs three adjacent real positions
        is_real = (emissions >= 0).unfold(2, 3, 1).all(3) if T > 2 else i >= 0
        transitions = torch.where(is_real, T * S + (i * S + j) * S + k, -1)
        return torch.cat([emissions, transitions], 2)


def _build_second_order_chain(T: int, S: int) -> tuple[Circuit, Items]:
    """Build the forward algorithm on pairs of labels.

    ``alpha[t, i, j] = label[t, j] sum_h alpha[t - 1, h, i] transition[h, i, j]`` sums
    over labels up to position t that end with i, j. ``entering`` is the inner sum.
    """
    c = Circuit()
    label, transition = c.leaves(T, S), c.shared(S, S, S)
    c.label(label, np.arange(T)[:, None], np.arange(S))
    alpha, entering = c.chart(T, S, S), c.chart(T, S, S)
    roots = c.chart(T + 1)
    roots[0] = c.ONE
    for t in range(T):
        if t == 0:
            c.define(roots[1], (label[0],))
            continue
        # the second position has no transition yet
        if t == 1:
            entering[1] = label[0][:, None]
        else:
            # the summed label h must be the last axis
            previous = np.moveaxis(alpha[t - 1], 0, 1)[:, None]
            c.define(entering[t], (previous, np.moveaxis(transition, 0, 2)))
        c.multiply(alpha[t], entering[t], np.broadcast_to(label[t], (S, S)))
        c.define(roots[t + 1], (alpha[t].reshape(-1),))
    return c, roots
