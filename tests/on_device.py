"""What tests that need a CUDA device share."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.truth.chain_cases import Case

DEVICE = torch.device("cuda", 0)
needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def there(case: Case) -> Case:
    """Return the case with every tensor on the device."""
    tensors = {k: v for k, v in vars(case).items() if isinstance(v, Tensor)}
    return case.replace(**{k: v.detach().to(DEVICE) for k, v in tensors.items()})


def value_and_gradients(case: Case, ask: Callable[[Case], Tensor]) -> list[Tensor]:
    """Return an answer and the gradients of its sum, all on the case's device."""
    leaves = case.leaves()
    value = ask(leaves)
    # away from the mean, so that no gradient vanishes
    slopes = torch.linspace(0.5, 2, value.numel(), dtype=value.dtype)
    (value * slopes.to(value.device).view(value.shape)).sum().backward()
    return [value.detach(), *leaves.gradients().values()]


def same(case: Case, ask: Callable[[Case], Tensor], **tolerance: float) -> None:
    """Hold an answer and its gradients against those of the CPU."""
    found = value_and_gradients(there(case), ask)
    assert all(x.device == DEVICE for x in found)
    expected = value_and_gradients(case, ask)
    torch.testing.assert_close([x.cpu() for x in found], expected, **tolerance)
