"""What rounding may not break."""

import torch
from torch import Tensor


def at_most_zero(chances: Tensor) -> Tensor:
    """Log-probabilities, 0 where rounding lifted them above; gradients as they were."""
    return torch.where(chances > 0, chances - chances.detach(), chances)
