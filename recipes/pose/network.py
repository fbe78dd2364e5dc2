"""Heat maps of joints from an image, and the springs between joints."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pose.joints import PARENTS
from smoothsp.models.backbones import Pyramid
from smoothsp.oracles import PictorialStructure

STRIDE = 4
WIDTH = 64
CHANNELS = (32, 64, 96)


class SmallEncoder(nn.Module):
    """Maps at a 4th, an 8th and a 16th of the size of an image."""

    channels = CHANNELS

    def __init__(self) -> None:
        super().__init__()
        first, second, third = CHANNELS
        self.to_4 = nn.Sequential(_conv_layer(3, 16, 2), _conv_layer(16, first, 2))
        self.to_8 = nn.Sequential(
            _conv_layer(first, second, 2), _conv_layer(second, second)
        )
        self.to_16 = nn.Sequential(
            _conv_layer(second, third, 2), _conv_layer(third, third)
        )

    def forward(self, pixels: Tensor) -> list[Tensor]:
        maps = [self.to_4(pixels)]
        maps.append(self.to_8(maps[0]))
        return [*maps, self.to_16(maps[1])]


def build_encoder(name: str, weights: str = "random") -> SmallEncoder | Pyramid:
    return SmallEncoder() if name == "small" else Pyramid(weights)


def _conv_layer(ins: int, outs: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(ins, outs, kernel, stride, kernel // 2, bias=False),
        nn.GroupNorm(8, outs),
        nn.ReLU(),
    )


class PoseNetwork(nn.Module):
    """A pictorial structure of each image.

    Coarse maps, which see the whole person, are enlarged and added to fine ones (as in
    feature pyramids: Lin et al., 2017). Springs are the same for all images; what
    squares weigh is kept positive.
    """

    def __init__(self, encoder: nn.Module, anchors: Tensor, variances: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.lateral = nn.ModuleList(
            nn.Conv2d(channels, WIDTH, 1) for channels in encoder.channels
        )
        self.mix = nn.ModuleList(
            _conv_layer(WIDTH, WIDTH, kernel=5) for _ in self.lateral
        )
        self.heat = nn.Conv2d(WIDTH, len(PARENTS), 1)
        self.anchors = nn.Parameter(anchors.float())
        # exp of these weighs squares: a Gaussian's 1 / (2 variance)
        self.stiffness = nn.Parameter(-(2 * variances.float()).log())
        self.register_buffer("parents", torch.tensor(PARENTS), persistent=False)

    def forward(self, images: Tensor) -> PictorialStructure:
        """Of uint8 images ``(n, side, side, 3)``."""
        pixels = (images.movedim(3, 1).float() - 127) / 128
        features: Tensor | None = None
        levels = zip(self.encoder(pixels), self.lateral, self.mix, strict=True)
        for maps, lateral, mix in reversed(list(levels)):
            level = lateral(maps)
            if features is not None:
                level = level + F.interpolate(
                    features, level.shape[2:], mode="bilinear"
                )
            features = mix(level)
        squares = self.stiffness.exp()
        # a row, a column: the linear terms are what anchors say already
        springs = torch.stack([torch.zeros_like(squares), squares], 2).flatten(1)
        return PictorialStructure(
            self.heat(features), springs, self.parents, self.anchors
        )
