"""Features that are kept on disk, and how large they are over a list."""

import numpy as np
import pytest
import torch
from PIL import Image

from smoothsp.data import AnnotatedImage
from smoothsp.models import box_images
from smoothsp.models.backbones import backbone
from smoothsp.models.box_images import SingleObjectImages, open_features
from smoothsp.models.box_scores import FeatureScale, LinearScores
from smoothsp.models.candidates import Proposals
from smoothsp.models.localiser import Localiser, LocaliserNetwork
from smoothsp.models.localiser_training import Options, _build_scores
from smoothsp.models.regions import Appearance, resize_image, scale_boxes

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


@pytest.fixture
def kept(path, tmp_path, monkeypatch):
    """Files of kept features of an image with these boxes."""

    def make(network, boxes=BOXES, side=SIDE):
        monkeypatch.setattr(box_images, "compute_candidates", lambda *_: [boxes])
        ones, twelve = torch.ones(112), torch.ones(12)
        scores = LinearScores(FeatureScale(ones, ones, twelve, twelve))
        whole = LocaliserNetwork(network, scores)
        localiser = Localiser(whole, ["cup"], Proposals(), side)
        example = AnnotatedImage(path, ((1, 1, 9, 9),), ("cup",), size=(40, 30))
        return SingleObjectImages(localiser, [example], tmp_path / "cache")

    return make


def test_kept_features_are_those_of_the_network(layers, path, kept):
    images = kept(layers)
    found = open_features(images.feature_files[0])
    assert found.dtype == torch.float16 and found.shape == (3, 9, 112)
    image = resize_image(np.asarray(Image.open(path)), SIDE)
    with torch.no_grad():
        boxes = scale_boxes(BOXES, 40, 30, SIDE)
        expected = Appearance(layers)(layers.pixels(image), boxes)
    torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=1e-3)


def test_features_are_kept_until_boxes_weights_or_size_change(
    layers, kept, monkeypatch
):
    made = []

    def features(_, pixels, boxes):
        made.append(boxes)
        return torch.zeros(len(boxes), 9, 112)

    monkeypatch.setattr(LocaliserNetwork, "features", features)
    (first,) = kept(layers).feature_files
    assert kept(layers).feature_files == [first] and len(made) == 1
    assert kept(layers, boxes=BOXES[:2]).feature_files != [first] and len(made) == 2
    assert kept(layers, side=96).feature_files != [first] and len(made) == 3
    other = backbone("efficientnet-lite0", "random")
    torch.nn.init.ones_(other.layers[0].normalisation.bias)
    assert kept(other).feature_files != [first] and len(made) == 4
    first.write_bytes(first.read_bytes()[:1000])
    assert kept(layers).feature_files == [first] and len(made) == 5
    assert open_features(first).shape == (3, 9, 112)


class Features:
    """Features of images, in place of the images."""

    def __init__(self, *parts):
        self.parts = parts

    def __len__(self):
        return len(self.parts)

    def features(self, number):
        return self.parts[number]


def test_mean_and_deviation_are_those_of_all_boxes_and_places():
    torch.manual_seed(0)
    looks, where = torch.randn(7, 9, 5), torch.randn(7, 12)
    images = Features((looks[:2], where[:2]), (looks[2:], where[2:]))
    found = _build_scores(images, Options())
    flat = looks.flatten(0, 1)
    torch.testing.assert_close(found.mean, flat.mean(0))
    torch.testing.assert_close(found.scale, 1 / flat.std(0, correction=0))
    torch.testing.assert_close(found.where_mean, where.mean(0))
    scale = 10 / where.std(0, correction=0)
    torch.testing.assert_close(found.where_scale, scale)
