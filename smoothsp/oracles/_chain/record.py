"""A batch of chains as questions take it: proven once, when it is made.

Ops take ``(emissions, transitions, start, end, steps, lengths)``: ``[B, T, S]``,
``[S, S]`` or ``[B, T - 1, S, S]``, ``[S]``, ``[S]``, ``[B, T]``, ``[B]``.
``steps[b, :lengths[b]]`` are the real positions of row b in order. None for both: all
positions are real.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import faults
from smoothsp.oracles._chain.addresses import VECTORS
from smoothsp.oracles._questions.positions import Positions
from smoothsp.oracles._questions.registration import PLAIN, Question, is_plain

Potentials = tuple[Tensor, Tensor, Tensor, Tensor]
NAMES = ("emissions", "transitions", "start", "end")


class Record:
    """Potentials and positions, and where plain ones lie in memory.

    Parameters
    ----------
    potentials
        Of fitting types and shapes, on one device, without a negative bit.
    positions
        Within the time axis.
    plain
        Whether they are known to be ordinary tensors on the CPU.

    Attributes
    ----------
    plain
        Whether questions may read memory, as long as nothing traces.
    views
        The potentials of a plain record, contiguous, without gradients. They keep the
        memory alive if a potential is given another.
    addresses
        Sizes and addresses of a plain record whose rows share the transitions, as
        ``_kernels.chain.cpu.whole_calls`` takes them.
    """

    views: list[Tensor]
    addresses: tuple[Any, ...]

    def __init__(
        self, potentials: Potentials, positions: Positions, plain: bool = False
    ) -> None:
        self.potentials, self.positions = potentials, positions
        self._arrays: tuple[Any, ...] | None = None
        emissions, transitions, start, end = potentials
        self.shared = transitions.dim() == 2
        self.plain = plain or (
            is_plain(emissions)
            and type(transitions) in PLAIN
            and type(start) in PLAIN
            and type(end) in PLAIN
        )
        if not self.plain:
            return
        self.views = views = [_view(x) for x in potentials]
        places = [x.data_ptr() for x in views]
        if not all(places):
            _refuse_lost(views)
        if self.shared:
            sizes, vector = emissions.shape, VECTORS[emissions.dtype]
            self.addresses = (*sizes, *places, *positions.addresses(), vector)

    @classmethod
    def of_inputs(
        cls,
        emissions: Tensor,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        steps: Tensor | None,
        lengths: Tensor | None,
    ) -> "Record":
        """Of what an op is given on the CPU, whose positions nobody has looked at."""
        B, T, _ = emissions.shape
        if steps is not None:
            steps = steps.contiguous()
        if lengths is not None:
            lengths = lengths.contiguous()
        positions = Positions(B, T, emissions.device, steps, lengths)
        if lengths is not None:
            prove_within(positions.steps, lengths, T)
        return cls((emissions, transitions, start, end), positions, plain=True)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What ops take. Without positions if plain, where all are real."""
        positions = self.positions
        if self.plain:
            return (*self.potentials, *positions.told())
        return (*self.potentials, positions.steps, positions.lengths)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What kernels take that want arrays, ``shared`` last."""
        if self._arrays is None:
            emissions, moves, start, end = (x.numpy() for x in self.views)
            positions = self.positions.steps.numpy(), self.positions.lengths.numpy()
            moves = moves[None, None] if self.shared else moves
            self._arrays = (emissions, moves, start, end, *positions, self.shared)
        return self._arrays

    def wants_gradient(self) -> bool:
        """Whether an answer has to be differentiated."""
        return torch.is_grad_enabled() and any(x.requires_grad for x in self.potentials)

    def new(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Memory for an answer."""
        return self.views[0].new_empty(shape, dtype=dtype)


def _view(tensor: Tensor) -> Tensor:
    view = tensor.detach()
    return view if view.is_contiguous() else view.contiguous()


def _refuse_lost(views: list[Tensor]) -> None:
    for name, x in zip(NAMES, views, strict=True):
        if x.data_ptr() == 0 and x.numel():
            raise ValueError(f"{name}: its memory was let go: nothing to read")


def prove_within(steps: Tensor, lengths: Tensor, T: int) -> None:
    """Refuse positions outside of T steps."""
    row = faults.find_bad_positions(array(steps), array(lengths), T)
    if row >= 0:
        raise ValueError(
            f"lengths: expected values from 0 to {T}, the time axis of emissions, got "
            f"{int(lengths[row])} at row {row}"
        )


def array(tensor: Tensor) -> Any:
    """The tensor as a contiguous array, of its own memory where it is contiguous."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.numpy() if tensor.is_contiguous() else tensor.contiguous().numpy()


def inner_steps(emissions: Tensor) -> int:
    """Steps of the innermost loop of one pass over a batch: B T S^2."""
    return emissions.numel() * emissions.shape[2]


CHAIN = (
    "Tensor emissions, Tensor transitions, Tensor start, Tensor end, Tensor? steps, "
    "Tensor? lengths"
)


def chain_question(
    name: str,
    rest: str,
    returns: str,
    *,
    of_record: Callable[..., Any],
    rest_by_row: tuple[bool, ...] = (),
    **ways: Any,
) -> Question:
    """The question ``smoothsp::chain_name``, of a chain and the arguments ``rest``."""

    def function(*inputs: Any) -> Any:
        return of_record(Record.of_inputs(*inputs[:6]), *inputs[6:])

    def by_row(axes: list[int]) -> list[bool]:
        return [True, axes[1] == 4, False, False, True, True, *rest_by_row]

    schema = f"({CHAIN}{', ' if rest else ''}{rest}) -> {returns}"
    return Question(
        f"chain_{name}",
        schema,
        function=function,
        of_record=of_record,
        by_row=by_row,
        **ways,
    )
