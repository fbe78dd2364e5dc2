"""Step sizes and averaging of the stochastic subgradient method.

The steps are those of ``torch.optim.SGD`` on a loss without smoothing.
"""

from functools import partial
from typing import Literal, get_args

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from smoothsp.optim import _checks
from smoothsp.optim.schedules import subgradient_rate

Decay = Literal["constant", "inverse-sqrt", "inverse", "step"]


class SubgradientLR(LambdaLR):
    r"""Step sizes of subgradient methods; call ``step()`` after every mini-batch.

    ==================  =========================================================
    decay               step t = 1, 2, ...
    ==================  =========================================================
    ``"constant"``      lr
    ``"inverse-sqrt"``  lr / sqrt(t)
    ``"inverse"``       lr / t; with lr = 1 / weight_decay this is Pegasos
    ``"step"``          lr / (1 + floor(t / t_0))
    ==================  =========================================================

    Parameters
    ----------
    optimizer
        Usually ``torch.optim.SGD``; its ``lr`` is that of the first step.
    decay
        Name of the rule in the table.
    t_0
        With ``"step"``: number of steps between changes, at least 1.
    last_epoch
        As in the schedulers of torch.

    Notes
    -----
    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    section 7.2: ``"step"`` for convex losses, the other rules for non-convex losses.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.optim import SubgradientLR
    >>> w = torch.zeros(1, requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=1.0)
    >>> scheduler = SubgradientLR(optimizer, "inverse")
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += scheduler.get_last_lr()
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 0.5, 0.3333333333333333, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        decay: Decay = "constant",
        t_0: int | None = None,
        last_epoch: int = -1,
    ) -> None:
        _checks.choice("decay", decay, get_args(Decay))
        if (decay == "step") != (t_0 is not None):
            expected = "a number of steps" if decay == "step" else "None"
            raise ValueError(
                f't_0: expected {expected} with decay="{decay}", got {t_0}'
            )
        if t_0 is not None:
            _checks.count("t_0", t_0)
        rate = partial(_rate_after, decay=decay, t_0=t_0 or 1)
        super().__init__(optimizer, rate, last_epoch)


def _rate_after(steps: int, decay: str, t_0: int) -> float:
    # The scheduler counts from 0, the rules from 1.
    return subgradient_rate(decay, steps + 1, t_0)


def weighted_average(averaged: Tensor, current: Tensor, num_averaged: Tensor) -> Tensor:
    r"""Mean of the iterates, the t-th with weight t; for ``swa_utils.AveragedModel``.

    .. math::

        \bar w_t = \frac{2}{t (t + 1)} \sum_{s \le t} s \, w_s
                 = (1 - \tfrac{2}{t + 1}) \bar w_{t-1} + \tfrac{2}{t + 1} w_t

    Notes
    -----
    With steps 1/(lambda t), the suboptimality of this mean is of order
    1 / (lambda t), which that of the last iterate is not.

    Examples
    --------
    >>> import torch
    >>> from torch.optim.swa_utils import AveragedModel
    >>> from smoothsp.optim import weighted_average
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> mean = AveragedModel(model, avg_fn=weighted_average)
    >>> for t in range(1, 4):
    ...     _ = torch.nn.init.constant_(model.weight, float(t))
    ...     mean.update_parameters(model)  # after each optimizer.step()
    >>> round(mean.module.weight.item(), 6)  # (1 + 2 * 2 + 3 * 3) / 6
    2.333333
    """
    weight = 2 / (num_averaged.to(averaged.dtype) + 2)
    return averaged + (current - averaged) * weight
