"""Draw docs/figures/smoothed_max.png: a maximum, its smoothings, and the k best."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from smoothsp.losses.functional import max_entropy, max_l2, topk_is_exact

MU = 1.0
OTHERS = (0.0, -0.25, -0.5)  # what x competes with on the right
STYLES = (  # of k = 4, 3, 2, 1
    {"color": "0.8", "linewidth": 5},
    {"color": "C1"},
    {"color": "C0"},
    {"color": "k", "linewidth": 1, "linestyle": ":"},
)


def draw_two_smoothings(axes: plt.Axes) -> None:
    x = torch.linspace(-3, 3, 601, dtype=torch.float64)
    pair = torch.stack([x, torch.zeros_like(x)], dim=-1)
    axes.plot(x, max_entropy(pair, MU), label="entropy")
    axes.plot(x, max_l2(pair, MU)[0], label="squared norm")
    axes.plot(x, pair.amax(-1), "k", linewidth=1, label="maximum")
    axes.set(xlabel="x", title=f"max(x, 0) and its smoothings, mu = {MU:g}")
    axes.legend()


def draw_weight_of_x(axes: plt.Axes) -> None:
    x = torch.linspace(-1, 1.5, 2501, dtype=torch.float64, requires_grad=True)
    rest = torch.tensor(OTHERS, dtype=torch.float64).expand(len(x), -1)
    scores = torch.cat([x[:, None], rest], dim=-1).sort(descending=True).values
    for k, style in zip(range(scores.shape[-1], 0, -1), STYLES, strict=True):
        value, _ = max_l2(scores[:, :k], MU)
        (weight,) = torch.autograd.grad(value.sum(), x, retain_graph=True)
        axes.plot(x.detach(), weight, **style, label=f"k = {k}")
    exact = topk_is_exact(scores[:, :3].detach(), MU)
    axes.axvspan(x[exact].min().item(), x.max().item(), color="C0", alpha=0.08)
    axes.text(0.95, 0.05, "k = 2\nis exact", ha="center", color="C0")
    axes.set(xlabel="x", title="weight of x against 0, -1/4, -1/2")
    axes.legend()


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    draw_two_smoothings(left)
    draw_weight_of_x(right)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=150)


if __name__ == "__main__":
    main()
