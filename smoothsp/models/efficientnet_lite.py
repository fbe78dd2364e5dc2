"""EfficientNet-Lite0 up to its eleventh block, and what its published weights call it.

Source: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks", table 1, without squeeze-and-excitation and with ReLU6, as the Lite variants
are published. TensorFlow's padding, which the weights were trained with.
"""

import re

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["CHANNELS", "checkpoint_key", "make_layers"]

# kernel, stride, expansion, channels and repeats of each stage
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
)
STEM, CHANNELS = 32, 112
EPSILON = 1e-3
# of a block's parts, in the published weights
PARTS = {
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
}


class _Convolution(nn.Module):
    """Convolution that keeps the size, or halves it rounding up; batch norm; ReLU6."""

    def __init__(
        self,
        ins: int,
        outs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        bend: bool = True,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            ins, outs, kernel, stride, groups=groups, bias=False
        )
        self.normalisation = nn.BatchNorm2d(outs, EPSILON)
        self.kernel, self.stride, self.bend = kernel, stride, bend

    def forward(self, maps: Tensor) -> Tensor:
        pads = []
        for size in (maps.shape[-1], maps.shape[-2]):
            # as TensorFlow's "same": what does not halve goes to the right and below
            lost = (-(-size // self.stride) - 1) * self.stride + self.kernel - size
            pads += [max(lost, 0) // 2, max(lost, 0) - max(lost, 0) // 2]
        found: Tensor = self.normalisation(self.convolution(F.pad(maps, pads)))
        return F.relu6(found) if self.bend else found


class _Block(nn.Module):
    """An inverted residual: more channels, a convolution of each alone, fewer."""

    def __init__(
        self, ins: int, outs: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        wide = ins * expansion
        self.expand = _Convolution(ins, wide) if expansion > 1 else nn.Identity()
        self.depthwise = _Convolution(wide, wide, kernel, stride, groups=wide)
        self.project = _Convolution(wide, outs, bend=False)
        self.adds = stride == 1 and ins == outs

    def forward(self, maps: Tensor) -> Tensor:
        found: Tensor = self.project(self.depthwise(self.expand(maps)))
        return found + maps if self.adds else found


def make_layers() -> nn.Sequential:
    """The stem and eleven blocks: 112 channels, one cell to 16 pixels."""
    found: list[nn.Module] = [_Convolution(3, STEM, 3, 2)]
    ins = STEM
    for kernel, stride, expansion, outs, repeats in STAGES:
        for number in range(repeats):
            step = 1 if number else stride
            found.append(_Block(ins, outs, kernel, step, expansion))
            ins = outs
    return nn.Sequential(*found)


def checkpoint_key(name: str) -> str:
    """Name of a parameter or buffer of ``layers`` in the published weights."""
    if stem := re.fullmatch(r"0\.(convolution|normalisation)\.(\w+)", name):
        return f"{'_conv_stem' if stem[1] == 'convolution' else '_bn0'}.{stem[2]}"
    number, part, kind, leaf = name.split(".")
    return f"_blocks.{int(number) - 1}.{PARTS[part][kind != 'convolution']}.{leaf}"
