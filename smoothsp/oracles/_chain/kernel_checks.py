"""Small chains on which the kernels of a device are tried against those of the CPU."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from smoothsp.oracles._chain import forward_backward, viterbi
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._inference.kernel_checks import (
    KernelCheck,
    assert_matches_cpu,
    kernels_pass,
    run_on_cpu,
)

Function = TypeVar("Function", bound=Callable[..., Any])
# Rows of a trial, their positions, one row shorter and one empty, and outputs of each.
B, T, K = 3, 5, 2
# What a training step asks, and predictions: their kernels are compiled at once.
TRAINING = ("log_partition", "decode")


# Answers of the CPU to ``ChainBuffers`` and further inputs.
CPU_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log_partition": forward_backward.log_partition_and_marginals,
    "covariance": forward_backward.covariance_cpu,
    "entropy": forward_backward.entropy_cpu,
    "decode": viterbi.decode_cpu,
    "decode_topk": lambda chain, k: viterbi.decode_topk_cpu(chain, k)[:2],
    "sample": viterbi.sample_cpu,
}


def run_cpu_function(question: str, *inputs: Any) -> Any:
    """Return the CPU's answer; the first six inputs are those of a chain."""
    return CPU_FUNCTIONS[question](ChainBuffers.from_op_args(*inputs[:6]), *inputs[6:])


class _CheckedKernel(NamedTuple):
    """A function that calls so many kernels, and the question that it answers."""

    function: Callable[..., Any]
    question: str
    kernels: int

    def reference(self, *inputs: Any) -> Any:
        """Return the CPU's answer, where the inputs are."""
        return run_on_cpu(inputs[0], run_cpu_function, self.question, *inputs)

    def run(
        self, dtype: torch.dtype, S: int, shared: bool, device: torch.device
    ) -> None:
        """Raise if kernels of a device give other answers than the CPU."""
        given = example_inputs(self.question, dtype, S, shared)
        there = tree_map_only(Tensor, lambda x: x.to(device), given)
        assert_matches_cpu(
            _tuple(self.function(*there)), _tuple(self.reference(*given)), dtype
        )


def _tuple(answer: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (answer,) if isinstance(answer, Tensor) else answer


CHECKED_KERNELS: dict[str, _CheckedKernel] = {}


def with_fallback(asked: str, kernels: int = 1) -> Callable[[Function], Function]:
    """Wrap a function that calls kernels, to answer a question as the CPU does.

    Each variant that Triton compiles, for a dtype, a power of two of states, and
    transitions that are shared or not, is tried on a chain of that kind. If one fails
    the CPU replaces all of them.
    """

    def wrap(function: Function) -> Function:
        name = function.__name__.strip("_")
        question = CHECKED_KERNELS[name] = _CheckedKernel(function, asked, kernels)

        @functools.wraps(function)
        def answer(*inputs: Any) -> Any:
            emissions, transitions, *_ = inputs
            S, shared, dtype = (
                emissions.shape[2],
                transitions.dim() == 2,
                emissions.dtype,
            )
            block = 1 << max(4, (S - 1).bit_length())
            edges = "shared" if shared else "own"
            variant = f"{dtype}, {block} states, {edges} transitions"

            def trials() -> Iterator[KernelCheck]:
                for other in TRAINING if name in TRAINING else (name,):
                    with_fallback = CHECKED_KERNELS[other]
                    run = functools.partial(with_fallback.run, dtype, S, shared)
                    yield KernelCheck(f"{other}, {variant}", with_fallback.kernels, run)

            right = kernels_pass(emissions, f"{name}, {variant}", trials)
            return (function if right else question.reference)(*inputs)

        return answer  # type: ignore[return-value]

    return wrap


def example_inputs(
    question: str, dtype: torch.dtype, S: int, shared: bool
) -> tuple[Any, ...]:
    """Return inputs of a question, on the CPU; rows are ragged, moves forbidden."""
    generator = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device="cpu")

    lengths = torch.tensor([T, 0, 3], device="cpu")
    # the third row has gaps: its real positions are 1, 3, 4
    steps = torch.arange(T, device="cpu").repeat(B, 1)
    steps[2] = torch.tensor([1, 3, 4, 0, 2], device="cpu")
    state = torch.arange(S, device="cpu")
    barred = (state[:, None] - state) % 3 == 1
    moves = draw(S, S) if shared else draw(B, T - 1, S, S)
    moves = moves.masked_fill(barred, -torch.inf)
    uniforms = torch.linspace(0.01, 0.99, B * K * T, dtype=torch.float64, device="cpu")
    edges = (B, S, S) if shared else (B, T - 1, S, S)
    rest: dict[str, tuple[Any, ...]] = {
        "log_partition": (False,),
        "decode_topk": (K,),
        "sample": (uniforms.view(B, K, T),),
        "covariance": (draw(B, T, S), draw(*edges), draw(B, S), draw(B, S)),
    }
    chain = (draw(B, T, S), moves, draw(S), draw(S), steps, lengths)
    return *chain, *rest.get(question, ())
