"""EfficientNet-Lite0 up to its eleventh block, with names of published weights.

Source: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks", table 1. The Lite variants have no squeeze-and-excitation, and ReLU6. Padding
is that of TensorFlow, with which the weights were trained.
"""

import re

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["CHANNELS", "checkpoint_key", "make_layers"]

# Kernel size, stride, expansion, channels and number of blocks of each stage.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
)
STEM_CHANNELS, CHANNELS = 32, 112
BATCH_NORM_EPSILON = 1e-3
# Names of convolution and batch norm of each part of a block in published weights.
CHECKPOINT_PARTS = {
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
}


class _Convolution(nn.Module):
    """Convolution to a size of ceil(size / stride), batch norm, and ReLU6."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        has_relu: bool = True,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels, out_channels, kernel, stride, groups=groups, bias=False
        )
        self.normalisation = nn.BatchNorm2d(out_channels, BATCH_NORM_EPSILON)
        self.kernel, self.stride, self.has_relu = kernel, stride, has_relu

    def forward(self, maps: Tensor) -> Tensor:
        pads = []
        for size in (maps.shape[-1], maps.shape[-2]):
            # TensorFlow's "same" padding: odd padding is larger on the right and below.
            padding = (-(-size // self.stride) - 1) * self.stride + self.kernel - size
            pads += [max(padding, 0) // 2, max(padding, 0) - max(padding, 0) // 2]
        normalised: Tensor = self.normalisation(self.convolution(F.pad(maps, pads)))
        return F.relu6(normalised) if self.has_relu else normalised


class _Block(nn.Module):
    """Inverted residual block: expansion, depthwise convolution, projection."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int,
        expansion: int,
    ) -> None:
        super().__init__()
        inner_channels = in_channels * expansion
        self.expand = (
            _Convolution(in_channels, inner_channels)
            if expansion > 1
            else nn.Identity()
        )
        self.depthwise = _Convolution(
            inner_channels, inner_channels, kernel, stride, groups=inner_channels
        )
        self.project = _Convolution(inner_channels, out_channels, has_relu=False)
        self.has_residual = stride == 1 and in_channels == out_channels

    def forward(self, maps: Tensor) -> Tensor:
        residual: Tensor = self.project(self.depthwise(self.expand(maps)))
        return residual + maps if self.has_residual else residual


def make_layers() -> nn.Sequential:
    """Build the stem and eleven blocks: 112 channels at stride 16."""
    blocks: list[nn.Module] = [_Convolution(3, STEM_CHANNELS, 3, 2)]
    in_channels = STEM_CHANNELS
    for kernel, stride, expansion, out_channels, repeats in STAGES:
        for index in range(repeats):
            step = 1 if index else stride
            blocks.append(_Block(in_channels, out_channels, kernel, step, expansion))
            in_channels = out_channels
    return nn.Sequential(*blocks)


def checkpoint_key(name: str) -> str:
    """Return the name of a parameter or buffer of ``make_layers`` in checkpoints."""
    if stem := re.fullmatch(r"0\.(convolution|normalisation)\.(\w+)", name):
        return f"{'_conv_stem' if stem[1] == 'convolution' else '_bn0'}.{stem[2]}"
    number, part, kind, leaf = name.split(".")
    # Module 0 is the stem, so blocks are numbered one lower in the checkpoint.
    module = CHECKPOINT_PARTS[part][kind != "convolution"]
    return f"_blocks.{int(number) - 1}.{module}.{leaf}"
