"""Linear chains restricted to the label sequences of a regular language."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, Items, topology
from smoothsp.oracles._circuits.masked_sequences import MaskedSequences
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.in_graphs import ConstantArgument
from smoothsp.oracles._inference.read_only import ReadOnly
from smoothsp.oracles._logic.regular import Automaton, build_automaton


class RegularLanguage(ReadOnly, ConstantArgument):
    """A regular language over labels, called on the scores of any batch of chains.

    Made by ``smoothsp.constraints.regular(labels, pattern)``.

    Parameters
    ----------
    labels
        One name per state of the chains.
    pattern
        As ``smoothsp.constraints.regular`` describes it.

    Examples
    --------
    >>> import torch
    >>> from smoothsp import constraints
    >>> language = constraints.regular(["A", "B"], "A* B")
    >>> language(torch.zeros(1, 3, 2)).decode()[1].tolist()
    [[0, 0, 1]]
    """

    def __init__(self, labels: Sequence[str], pattern: str) -> None:
        self.labels, self.pattern = tuple(labels), pattern
        self._automaton = build_automaton(pattern, self.labels)

    def __call__(
        self,
        emissions: Tensor,
        transitions: Tensor | None = None,
        start: Tensor | None = None,
        end: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> "RegularChain":
        """Return the structure whose outputs are the sequences of the language."""
        options = {"lengths": lengths, "mask": mask}
        return RegularChain(emissions, transitions, start, end, self, **options)

    def __repr__(self) -> str:
        states = len(self._automaton.transitions)
        return f"RegularLanguage({self.pattern!r}, states={states})"


class RegularChain(MaskedSequences):
    """A batch of label sequences that a regular expression matches.

    The score is that of a ``Chain``: emissions, transitions, and scores of the first
    and last label. Only sequences in the language are outputs. Every result is exact,
    and differentiable in every potential.

    Parameters
    ----------
    emissions
        ``(batch, time, state)``, float32 or float64; bfloat16 and float16 are computed
        in float32.
    transitions
        ``(state, state)``: ``transitions[i, j]`` scores i followed by j. Zero if
        absent.
    start, end
        ``(state,)`` scores of the first and of the last label; zero if absent.
    language
        Language made by ``smoothsp.constraints.regular``; its labels are the states.
    lengths
        ``(batch,)`` integers from 0 to time: the number of real positions of each row,
        the first ones. Entries beyond are never read; their gradient is exactly zero.
    mask
        ``(batch, time)`` bool, True where a position is real: instead of ``lengths``.
        Masked positions are skipped as if deleted.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row whose outputs
        are all forbidden. A row is forbidden, too, if no sequence of the language has
        its length. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, time)``: a label for each position, -1 at masked ones.
    Inference is on the product of chain and automaton: O(batch time Q state^2) for Q
    states of the automaton.

    Source: Roche and Schabes, "Finite-State Language Processing" (1997), chapter 1
    (intersection with an automaton); Papay et al., "Constraining Linear-chain CRFs to
    Regular Languages" (2022), section 3.

    Examples
    --------
    Exactly one span:

    >>> import torch
    >>> from smoothsp import constraints
    >>> one_span = constraints.regular(["O", "B", "I"], "O* B I* O*")
    >>> emissions = torch.tensor([[[0.0, 1, 2], [0, 0, 3], [0, 4, 0], [1, 0, 0]]])
    >>> value, y = one_span(emissions).decode()
    >>> value.tolist(), y.tolist()
    ([5.0], [[0, 0, 1, 0]])
    """

    emissions: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    output_description = "labels that the pattern of the language matches"

    def __init__(
        self,
        emissions: Tensor,
        transitions: Tensor | None,
        start: Tensor | None,
        end: Tensor | None,
        language: RegularLanguage,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        emissions = checks.as_potentials("emissions", emissions)
        S = len(language.labels)
        if emissions.dim() != 3 or emissions.shape[2] != S:
            raise ValueError(
                f"emissions: expected (batch, time, state) with the {S} labels of the "
                f"language as states, got {tuple(emissions.shape)}"
            )
        T = emissions.shape[1]
        shared = {}
        arguments = {"transitions": transitions, "start": start, "end": end}
        for name, value in arguments.items():
            form = "(state, state)" if name == "transitions" else "(state,)"
            shape = (S, S) if name == "transitions" else (S,)
            # one circuit for all: absent scores are zeros
            if value is None:
                value = emissions.new_zeros(shape)
            else:
                value = checks.as_potentials(name, value)
                checks.require_same_dtype(name, value, "emissions", emissions)
                checks.require_shape(name, value, shape, form)
            shared[name] = value
        size = self._count_real_positions(emissions, lengths, mask)
        self.language = language
        built = topology(_build_regular_chain, T, language._automaton)
        super().__init__(
            built,
            {"emissions": emissions},
            shared,
            roots=built.root(size),
            lengths=size,
            shape=(T,),
        )

    @property
    def _label_counts_width(self) -> int:
        return self.emissions.shape[2]

    def leaves(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Emissions of real positions first, then transitions and ends."""
        return self._pack(self.emissions), tuple(self._shared_potentials.values())

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of emissions, transitions, and the start and end scores."""
        emissions = super().leaves_used(labels)
        T, S = self.emissions.shape[1:]
        if not T:
            return emissions
        is_real, P = emissions >= 0, T * S
        has_transition = is_real[..., :-1] & is_real[..., 1:]
        transitions = P + labels[..., :-1] * S + labels[..., 1:]
        # labels are packed: real positions come first, so the last is at length - 1
        last = (self.lengths - 1).clamp(min=0)[:, None, None]
        last = last.expand(*labels.shape[:2], 1)
        ends = [
            torch.where(
                is_real.gather(2, position),
                P + S * S + i * S + labels.gather(2, position),
                -1,
            )
            for i, position in enumerate((torch.zeros_like(last), last))
        ]
        return torch.cat(
            [emissions, torch.where(has_transition, transitions, -1), *ends], 2
        )


def _build_regular_chain(T: int, language: Automaton) -> tuple[Circuit, Items]:
    """Build the forward algorithm on the product of chain and automaton.

    ``alpha[q, s]`` at position t sums over labels up to t with last label s that lead
    the automaton to state q. ``entering[q, s]`` sums over labels before t that lead to
    q, with the transition to label s.
    """
    c = Circuit()
    next_state = np.array(language.transitions, np.int64).reshape(
        len(language.transitions), -1
    )
    Q, S = next_state.shape
    label = c.leaves(T, S)
    transition, start, end = c.shared(S, S), c.shared(S), c.shared(S)
    c.label(label, np.arange(T)[:, None], np.arange(S))
    # automaton transitions (q, s), grouped by the (next state, label) that they reach
    q, s = (next_state >= 0).nonzero()
    order = np.lexsort((q, s, next_state[q, s]))
    q, s = q[order], s[order]
    reached, counts = np.unique(next_state[q, s] * S + s, return_counts=True)
    roots = np.full(T + 1, c.NONE, np.int32)
    roots[0] = c.ONE if language.accepts[0] else c.NONE
    # a sequence is in the language if it ends in an accepting state
    accepting = np.flatnonzero(np.array(language.accepts)[reached // S])
    if T and len(accepting):
        roots[1:] = c.chart(T)
    entering, alpha = np.full((Q, S), c.NONE, np.int32), label[:0]
    # before the first position the automaton is in state 0
    entering[0] = start
    for t in range(T):
        if t > 0:
            entering = c.chart(Q, S)
            # sums over the previous label: Q S^2 products, shared by all next states
            c.define(entering, (alpha.reshape(Q, 1, S), transition.T[None]))
        alpha = np.full(Q * S, c.NONE, np.int32)
        alpha[reached] = c.chart(len(reached))
        c.define_each(alpha[reached], counts, entering[q, s], label[t, s])
        if len(accepting):
            c.define(
                roots[t + 1], (alpha[reached[accepting]], end[reached[accepting] % S])
            )
    return c, roots
