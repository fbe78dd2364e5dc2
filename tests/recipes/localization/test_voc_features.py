"""Features that are kept on disk, and how large they are over a list."""

import numpy as np
import pytest
import torch
from PIL import Image

from localization import features as localization_features
from smoothsp.models.backbones import backbone
from smoothsp.models.regions import Appearance, resized

BOXES = np.array([[0, 0, 40, 30], [3, 4, 9, 28], [39.8, 29.9, 40, 30]], np.float32)
SIDE = 64


@pytest.fixture(scope="module")
def layers():
    return backbone("efficientnet-lite0", "random")


@pytest.fixture
def path(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def test_what_is_kept_are_the_network_s_features(layers, path, tmp_path):
    arguments = (layers, [path], [BOXES], SIDE, tmp_path / "cache")
    (kept,) = localization_features.kept_on_disk(*arguments)
    found = localization_features.open_kept(kept)
    assert found.dtype == torch.float16 and found.shape == (3, 9, 112)
    image, boxes = resized(np.asarray(Image.open(path)), BOXES, SIDE)
    with torch.no_grad():
        expected = Appearance(layers)(layers.pixels(image), boxes)
    torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=1e-3)


def test_features_are_kept_until_boxes_weights_or_size_change(
    layers, path, tmp_path, monkeypatch
):
    made = []

    class Counted(torch.nn.Module):
        def __init__(self, backbone):
            super().__init__()

        def forward(self, pixels, boxes):
            made.append(boxes)
            return torch.zeros(len(boxes), 9, 112)

    monkeypatch.setattr(localization_features, "Appearance", Counted)
    cache = tmp_path / "cache"

    def kept(network=layers, boxes=BOXES, side=SIDE):
        arguments = (network, [path], [boxes], side, cache)
        (found,) = localization_features.kept_on_disk(*arguments)
        return found

    first = kept()
    assert kept() == first and len(made) == 1
    assert kept(boxes=BOXES[:2]) != first and len(made) == 2
    assert kept(side=96) != first and len(made) == 3
    other = backbone("efficientnet-lite0", "random")
    torch.nn.init.ones_(other.layers[0].normalisation.bias)
    assert kept(network=other) != first and len(made) == 4
    first.write_bytes(first.read_bytes()[:1000])
    assert kept() == first and len(made) == 5
    assert localization_features.open_kept(first).shape == (3, 9, 112)


def test_mean_and_deviation_are_those_of_all_boxes_and_places():
    torch.manual_seed(0)
    looks, where = torch.randn(7, 9, 5), torch.randn(7, 12)
    parts = [(looks[:2], where[:2]), (looks[2:], where[2:])]
    found = localization_features.scale(parts.__getitem__, range(2))
    flat = looks.flatten(0, 1)
    torch.testing.assert_close(found.mean, flat.mean(0))
    torch.testing.assert_close(found.deviation, flat.std(0, correction=0))
    torch.testing.assert_close(found.where_mean, where.mean(0))
    torch.testing.assert_close(found.where_deviation, where.std(0, correction=0))
