"""AlexNet's features of boxes, its weights, and the scores on top of them."""

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch.nn import functional as F
from torchvision.ops import roi_align

from localization import features as localization_features
from localization.features import backbone
from localization.network import LinearScores, Localiser, NonlinearScores
from smoothsp.optim import Linearised

BOXES = np.array([[0, 0, 40, 30], [3, 4, 9, 28], [39.8, 29.9, 40, 30]], np.float32)


@pytest.fixture(scope="module")
def layers():
    return backbone("random")


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)


@pytest.fixture(scope="module")
def features():
    return torch.randn(7, 9, 256, generator=torch.Generator().manual_seed(0))


def test_random_weights_are_the_same_for_every_seed(layers):
    torch.manual_seed(5)
    again = backbone("random")
    assert localization_features.checksum(again) == localization_features.checksum(
        layers
    )


def test_a_box_becomes_256_numbers_at_3_by_3_places(layers, image):
    found = localization_features.of_boxes(layers, image, BOXES)
    assert found.shape == (3, 9, 256) and found.dtype == torch.float16
    # of the whole image, which is the first box, with torch's own resizing
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    size = (64, 64)
    large = F.interpolate(pixels, size, mode="bilinear").round() / 255
    mean, spread = (
        torch.tensor(x)[:, None, None]
        for x in (localization_features.MEAN, localization_features.SPREAD)
    )
    with torch.no_grad():
        maps = layers((large - mean) / spread)
    assert maps.shape == (1, 256, 3, 3)
    expected = maps[0].flatten(1).T
    assert (found[0].float() - expected).norm() < 0.02 * expected.norm()


def test_features_do_not_depend_on_how_many_go_at_once(layers, image, monkeypatch):
    found = localization_features.of_boxes(layers, image, BOXES)
    monkeypatch.setattr(localization_features, "AT_ONCE", 2)
    torch.testing.assert_close(
        localization_features.of_boxes(layers, image, BOXES), found
    )


def test_features_are_kept_on_disk_until_boxes_or_weights_change(
    layers, tmp_path, image, monkeypatch
):
    made = []

    def count(*arguments):
        made.append(arguments)
        return torch.zeros(len(arguments[2]), 9, 256, dtype=torch.float16)

    monkeypatch.setattr(localization_features, "of_boxes", count)
    path = tmp_path / "image.png"
    Image.fromarray(image).save(path)
    cache = tmp_path / "cache"

    def kept(network=layers, boxes=BOXES):
        (found,) = localization_features.kept_on_disk(network, [path], [boxes], cache)
        return found

    first = kept()
    assert kept() == first and len(made) == 1
    assert localization_features.open_kept(first).shape == (3, 9, 256)
    assert kept(boxes=BOXES[:2]) != first and len(made) == 2
    other = backbone("random")
    torch.nn.init.ones_(other[0].bias)
    assert kept(network=other) != first and len(made) == 3
    first.write_bytes(first.read_bytes()[:1000])
    assert kept() == first and len(made) == 4
    assert localization_features.open_kept(first).shape == (3, 9, 256)


# --- weights ---


def test_weights_are_read_from_a_file(tmp_path):
    network = backbone("random")
    torch.nn.init.ones_(network[8].bias)
    path = tmp_path / "alexnet.pth"
    state = {f"features.{name}": value for name, value in network.state_dict().items()}
    torch.save(state | {"classifier.1.bias": torch.zeros(3)}, path)
    found = localization_features.checksum(backbone(str(path)))
    assert found == localization_features.checksum(network)


def test_weights_of_imagenet_come_from_torchvision(monkeypatch):
    with torch.device("meta"):
        network = torchvision.models.alexnet(weights=None)
    asked = []

    def build(weights):
        asked.append(weights)
        return network

    monkeypatch.setattr(localization_features, "alexnet", build)
    assert backbone("imagenet")[0] is network.features[0]
    assert asked == [torchvision.models.AlexNet_Weights.IMAGENET1K_V1]

    def unreachable(weights):
        raise OSError("no network")

    monkeypatch.setattr(localization_features, "alexnet", unreachable)
    with pytest.raises(ConnectionError, match=r"no network.*--weights random"):
        backbone("imagenet")


def test_files_that_hold_no_weights_are_named(tmp_path):
    path = tmp_path / "weights.pth"
    with pytest.raises(FileNotFoundError, match=f"found no file {path}"):
        backbone(str(path))
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=f"{path}: expected the weights of"):
        backbone(str(path))
    torch.save({"features.0.weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"features.0.weight of shape \(64, 3, 11, 11"):
        backbone(str(path))
    torch.save([1], path)
    with pytest.raises(ValueError, match=r"features.0.weight of .*got none"):
        backbone(str(path))
    layers = {f"features.{n}": x for n, x in backbone("random").state_dict().items()}
    layers["features.3.bias"][2] = torch.nan
    torch.save(layers, path)
    with pytest.raises(ValueError, match=r"got NaN in 1 of 192 places of features.3.b"):
        backbone(str(path))
    torch.save(torch.nn.Linear(1, 1), path)
    with pytest.raises(ValueError, match=f"{path}: expected the weights of"):
        backbone(str(path))


# --- scores ---


def test_the_nonlinear_score_has_4240_weights():
    scores = NonlinearScores(torch.zeros(256), torch.ones(256))
    assert sum(p.numel() for p in scores.parameters()) == 4240
    scores = LinearScores(torch.ones(256))
    assert sum(p.numel() for p in scores.parameters()) == 2304


def test_the_nonlinear_score_is_convolution_elu_linear(features):
    mean, spread = torch.rand(256), 0.5 + torch.rand(256)
    scores = NonlinearScores(mean, spread)
    maps = ((features - mean) / spread).transpose(1, 2).unflatten(2, (3, 3))
    kernel = scores.convolution.T[:, :, None, None]
    hidden = F.elu(F.conv2d(maps, kernel)).flatten(2)
    expected = (hidden * scores.weight.T).sum((1, 2))
    torch.testing.assert_close(scores(features), expected)


def test_the_linear_score_forgets_only_what_all_boxes_share(features):
    mean, spread = torch.rand(256), 0.5 + torch.rand(256)
    scores = LinearScores(spread)
    torch.nn.init.normal_(scores.weight)
    whole = ((features - mean) / spread * scores.weight).sum((1, 2))
    found = scores(features)
    torch.testing.assert_close(found - found[0], whole - whole[0])


def test_mean_and_deviation_are_those_of_all_boxes_and_places(features):
    parts = [features[:2], features[2:]]
    mean, spread = localization_features.spread(parts.__getitem__, range(2))
    flat = features.flatten(0, 1)
    torch.testing.assert_close(mean, flat.mean(0))
    torch.testing.assert_close(spread, flat.std(0, correction=0))


def test_a_channel_that_never_fires_counts_nothing(features):
    dead = features.clone()
    dead[:, :, 3] = 0.5
    mean, spread = localization_features.spread([dead].__getitem__, range(1))
    for scores in (LinearScores(spread), NonlinearScores(mean, spread)):
        found = scores(dead)
        assert found.isfinite().all()
        found.sum().backward()
        changed = dead.clone()
        changed[:, :, 3] = 7
        assert torch.equal(scores(changed), scores(dead))


# --- RoI-align over the whole image ---


class Boxes(torch.nn.Module):
    """Features of boxes as a function of the whole image's."""

    def __init__(self, maps):
        super().__init__()
        self.maps = torch.nn.Parameter(maps)

    def forward(self, boxes):
        return localization_features._RoIAlign.apply(self.maps, boxes)


def test_roi_align_has_all_derivatives():
    maps = torch.randn(1, 2, 6, 7, dtype=torch.float64)
    boxes = torch.tensor([[0.0, 0, 90, 80], [20, 30, 60, 70]], dtype=torch.float64)
    network = Boxes(maps)
    found = network(boxes)
    expected = roi_align(maps, [boxes], 3, 1 / 16, 2, aligned=True)
    torch.testing.assert_close(found, expected)
    apply = localization_features._RoIAlign.apply
    assert torch.autograd.gradcheck(lambda m: apply(m, boxes), network.maps)
    linear = Linearised(network)
    torch.nn.init.normal_(linear.variables[0])
    moved = linear.variables[0].detach()
    torch.testing.assert_close(linear(boxes) - found, apply(moved, boxes))
    assert not linear._reverse_only


def test_the_whole_network_is_linearised_in_forward_mode(layers):
    network = Localiser(LinearScores(torch.ones(256)), layers)
    torch.nn.init.normal_(network.scores.weight)
    inputs = torch.randn(3, 120, 160), torch.tensor([[0.0, 0, 90, 80], [9, 9, 40, 70]])
    linear = Linearised(network)
    torch.testing.assert_close(linear(*inputs), network(*inputs))
    linear(*inputs).square().sum().backward()
    network(*inputs).square().sum().backward()
    assert not linear._reverse_only
    for u, p in zip(linear.variables, network.parameters(), strict=True):
        torch.testing.assert_close(u.grad, p.grad, rtol=1e-4, atol=1e-4)


def test_boxes_of_the_whole_image_grow_with_it(image, tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(image).save(path)
    pixels, boxes = localization_features.whole_image(path, BOXES)
    assert pixels.shape == (3, 375, 500)
    torch.testing.assert_close(boxes, torch.from_numpy(BOXES) * 12.5)
