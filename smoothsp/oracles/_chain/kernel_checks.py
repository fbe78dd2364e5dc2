"""Small chains on which CUDA kernels are checked against the CPU."""

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
# Rows (one shorter, one empty), steps and outputs of the example.
B, T, K = 3, 5, 2
# Ops of training and prediction: compiled and checked together, in one pause.
TRAINING_KERNELS = ("log_partition", "decode")


# CPU functions of ``ChainBuffers`` and further inputs, by op.
CPU_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log_partition": forward_backward.log_partition_and_marginals,
    "covariance": forward_backward.covariance_cpu,
    "entropy": forward_backward.entropy_cpu,
    "decode": viterbi.decode_cpu,
    "decode_topk": lambda chain, k: viterbi.decode_topk_cpu(chain, k)[:2],
    "sample": viterbi.sample_cpu,
}


def run_cpu_function(name: str, *inputs: Any) -> Any:
    """Call the CPU function of an op; the first six inputs are those of a chain."""
    return CPU_FUNCTIONS[name](ChainBuffers.from_op_args(*inputs[:6]), *inputs[6:])


class _CheckedKernel(NamedTuple):
    """A function that calls kernels, the name of its op, and its number of kernels."""

    function: Callable[..., Any]
    name: str
    num_kernels: int

    def reference(self, *inputs: Any) -> Any:
        """Compute on CPU copies; return results on the device of the inputs."""
        return run_on_cpu(inputs[0], run_cpu_function, self.name, *inputs)

    def run(
        self, dtype: torch.dtype, S: int, shared: bool, device: torch.device
    ) -> None:
        """Raise if results of the device differ from those of the CPU."""
        inputs = example_inputs(self.name, dtype, S, shared)
        device_inputs = tree_map_only(Tensor, lambda x: x.to(device), inputs)
        assert_matches_cpu(
            _as_tuple(self.function(*device_inputs)),
            _as_tuple(self.reference(*inputs)),
            dtype,
        )


def _as_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else result


CHECKED_KERNELS: dict[str, _CheckedKernel] = {}


def with_fallback(cpu_name: str, kernels: int = 1) -> Callable[[Function], Function]:
    """Wrap a function that calls kernels: check it first, and fall back to the CPU.

    Triton compiles a variant for each dtype, padded number of states, and shared or
    per-step transitions. Each is checked on a chain of that kind. After one failure the
    CPU replaces all of them.
    """

    def wrap(function: Function) -> Function:
        name = function.__name__.strip("_")
        kernel = CHECKED_KERNELS[name] = _CheckedKernel(function, cpu_name, kernels)

        @functools.wraps(function)
        def call(*inputs: Any) -> Any:
            emissions, transitions, *_ = inputs
            S, shared, dtype = (
                emissions.shape[2],
                transitions.dim() == 2,
                emissions.dtype,
            )
            padded_states = 1 << max(4, (S - 1).bit_length())
            transitions_text = "shared" if shared else "own"
            variant = f"{dtype}, {padded_states} states, {transitions_text} transitions"

            def list_checks() -> Iterator[KernelCheck]:
                for kernel_name in (
                    TRAINING_KERNELS if name in TRAINING_KERNELS else (name,)
                ):
                    checked = CHECKED_KERNELS[kernel_name]
                    run = functools.partial(checked.run, dtype, S, shared)
                    yield KernelCheck(
                        f"{kernel_name}, {variant}", checked.num_kernels, run
                    )

            passed = kernels_pass(emissions, f"{name}, {variant}", list_checks)
            return (function if passed else kernel.reference)(*inputs)

        return call  # type: ignore[return-value]

    return wrap


def example_inputs(
    name: str, dtype: torch.dtype, S: int, shared: bool
) -> tuple[Any, ...]:
    """Return CPU inputs of an op, with ragged rows and forbidden transitions."""
    generator = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device="cpu")

    lengths = torch.tensor([T, 0, 3], device="cpu")
    # the third row has gaps: its real positions are 1, 3, 4
    steps = torch.arange(T, device="cpu").repeat(B, 1)
    steps[2] = torch.tensor([1, 3, 4, 0, 2], device="cpu")
    state = torch.arange(S, device="cpu")
    is_forbidden = (state[:, None] - state) % 3 == 1
    transitions = draw(S, S) if shared else draw(B, T - 1, S, S)
    transitions = transitions.masked_fill(is_forbidden, -torch.inf)
    uniforms = torch.linspace(0.01, 0.99, B * K * T, dtype=torch.float64, device="cpu")
    edges = (B, S, S) if shared else (B, T - 1, S, S)
    extra_inputs: dict[str, tuple[Any, ...]] = {
        "log_partition": (False,),
        "decode_topk": (K,),
        "sample": (uniforms.view(B, K, T),),
        "covariance": (draw(B, T, S), draw(*edges), draw(B, S), draw(B, S)),
    }
    chain = (draw(B, T, S), transitions, draw(S), draw(S), steps, lengths)
    return *chain, *extra_inputs.get(name, ())
