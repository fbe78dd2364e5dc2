"""Small chains with known answers, on which the kernels of a device are tried."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from smoothsp.oracles._chain import by_steps
from smoothsp.oracles._questions.device_check import Trial, hold, sound

Function = TypeVar("Function", bound=Callable[..., Any])
# Rows of a trial, their positions, one row shorter and one empty, and outputs of each.
B, T, K = 3, 5, 2
# What a training step asks, and predictions: their kernels are compiled at once.
TRAINING = ("log_partition_by_step", "vjp", "score", "count", "viterbi")


class _Question(NamedTuple):
    """A function that calls so many kernels, and its twin in PyTorch."""

    function: Callable[..., Any]
    plain: Callable[..., Any]
    kernels: int

    def run(
        self, dtype: torch.dtype, S: int, shared: bool, device: torch.device
    ) -> None:
        """Raise if kernels of a device give other answers than PyTorch on the CPU."""
        given = example(self.plain, dtype, S, shared)
        found = self.function(*there(given, device))
        hold(_flat(found), _flat(self.plain(*given)), dtype)


questions: dict[str, _Question] = {}


def tried(
    plain: Callable[..., Any], kernels: int = 1
) -> Callable[[Function], Function]:
    """Wrap a function that calls kernels, and whose twin in PyTorch is ``plain``.

    Each variant that Triton compiles, for a dtype, a power of two of states, and
    transitions that are shared or not, is tried on a chain of that kind. If one fails
    ``plain`` replaces all of them.
    """

    def wrap(function: Function) -> Function:
        name = function.__name__.strip("_")
        questions[name] = _Question(function, plain, kernels)

        @functools.wraps(function)
        def answer(*inputs: Any) -> Any:
            near, S, shared = _kind(plain, inputs)
            block = 1 << max(4, (S - 1).bit_length())
            edges = "shared" if shared else "own"
            variant = f"{near.dtype}, {block} states, {edges} transitions"

            def trials() -> Iterator[Trial]:
                for other in TRAINING if name in TRAINING else (name,):
                    asked = questions[other]
                    run = functools.partial(asked.run, near.dtype, S, shared)
                    yield Trial(f"{other}, {variant}", asked.kernels, run)

            right = sound(near, f"{name}, {variant}", trials)
            return (function if right else plain)(*inputs)

        return answer  # type: ignore[return-value]

    return wrap


def _kind(plain: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, int, bool]:
    """Return a tensor of the dtype, how many states, and whether moves are shared."""
    if plain is by_steps.vjp:
        _, parts, shared = inputs
        return parts[0], parts[2].shape[1], shared
    if plain is by_steps.count:
        return inputs[0], *inputs[4:6]
    emissions, transitions, *_ = inputs[0]
    return emissions, emissions.shape[2], transitions.dim() == 2


def example(
    plain: Callable[..., Any], dtype: torch.dtype, S: int, shared: bool
) -> tuple[Any, ...]:
    """Return arguments for a question, on the CPU; rows are ragged, moves forbidden."""
    generator = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device="cpu")

    lengths = torch.tensor([T, 0, 3], device="cpu")
    # the third row has gaps: its real positions are 1, 3, 4
    steps = torch.arange(T, device="cpu").repeat(B, 1)
    steps[2] = torch.tensor([1, 3, 4, 0, 2], device="cpu")
    state = torch.arange(S, device="cpu")
    barred = (state[:, None] - state) % 3 == 1
    moves = draw(S, S) if shared else draw(B, T - 1, S, S)
    moves = moves.masked_fill(barred, -torch.inf)
    chain = (draw(B, T, S), moves, draw(S), draw(S), steps, lengths)
    labels = torch.randint(S, (B, K, T), generator=generator, device="cpu")
    if plain is by_steps.score:
        return chain, labels
    if plain is by_steps.viterbi_topk:
        return chain, K
    if plain is by_steps.sample:
        shape = (B, K, T)
        return chain, torch.rand(
            shape, generator=generator, dtype=torch.float64, device="cpu"
        )
    if plain is by_steps.count:
        return draw(B, K), labels, steps, lengths, S, shared, 1
    edges = draw(B, 1 if shared else T - 1, S, S)
    parts = (draw(B, T, S), edges, draw(B, S), draw(B, S))
    if plain is by_steps.covariance:
        return chain, *parts
    if plain is by_steps.vjp:
        return draw(B), parts, shared
    return (chain,)


def there(given: Any, device: torch.device) -> Any:
    """Return tensors, of tuples too, on a device."""
    if isinstance(given, tuple):
        return tuple(there(x, device) for x in given)
    return given.to(device) if isinstance(given, Tensor) else given


def _flat(answer: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (answer,) if isinstance(answer, Tensor) else answer
