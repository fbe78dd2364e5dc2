"""Step sizes and weighted average of the stochastic subgradient method."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.testing import assert_close

from smoothsp.optim import SubgradientLR, weighted_average
from tests.optim.problems import Vector

RATES = {
    "constant": (None, [1, 1, 1, 1, 1]),
    "inverse-sqrt": (None, [1, 2**-0.5, 3**-0.5, 1 / 2, 5**-0.5]),
    "inverse": (None, [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
    "step": (2, [1, 1 / 2, 1 / 2, 1 / 3, 1 / 3]),
}


@pytest.mark.parametrize("decay", RATES)
def test_rates_of_each_group(decay):
    t_0, factors = RATES[decay]
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.5, 2.0)]
    optimizer = torch.optim.SGD(groups)
    scheduler = SubgradientLR(optimizer, decay, t_0)
    for factor in factors:
        assert scheduler.get_last_lr() == pytest.approx([factor / 2, 2 * factor])
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_average_is_its_closed_form(dtype):
    model = Vector(torch.zeros(3, dtype=dtype))
    mean = AveragedModel(model, avg_fn=weighted_average)
    iterates = torch.randn(20, 3, dtype=dtype)
    for w in iterates:
        with torch.no_grad():
            model.w.copy_(w)
        mean.update_parameters(model)
    t = torch.arange(1, 21, dtype=dtype)
    expected = 2 / (20 * 21) * (t[:, None] * iterates).sum(0)
    assert_close(mean.module.w.detach(), expected)


def test_messages():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match=r"decay: expected one of .*got 'linear'"):
        SubgradientLR(optimizer, "linear")
    with pytest.raises(ValueError, match="t_0: expected a number of steps"):
        SubgradientLR(optimizer, "step")
    with pytest.raises(ValueError, match="t_0: expected None"):
        SubgradientLR(optimizer, "inverse", 5)
    with pytest.raises(ValueError, match="t_0: expected at least 1, got 0"):
        SubgradientLR(optimizer, "step", 0)
