"""Networks below the localiser: cut, drawn, and read from files."""

import sys
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch.nn import functional as F

from smoothsp.models import backbones, efficientnet_lite
from smoothsp.models.backbones import NAMES, backbone

ALEXNET = "alexnet"
LITE = "efficientnet-lite0"


@pytest.fixture(scope="module")
def lite():
    return backbone(LITE, "random")


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_stands_for_16_pixels(name):
    network = backbone(name, "random")
    with torch.no_grad():
        maps = network(torch.randn(1, 3, 160, 128))
    rows = (9, 7) if name == ALEXNET else (10, 8)
    assert maps.shape == (1, network.channels, *rows)
    assert maps.isfinite().all()


def test_random_weights_are_the_same_every_time_and_of_each_network(lite):
    torch.manual_seed(5)
    assert backbone(LITE, "random").checksum() == lite.checksum()
    assert backbone(ALEXNET, "random").checksum() != lite.checksum()


def test_a_network_stays_in_evaluation(lite):
    lite.train()
    assert not any(module.training for module in lite.modules())


def test_pixels_are_scaled_as_the_weights_were_trained(lite):
    image = np.random.default_rng(0).integers(0, 255, (5, 4, 3)).astype(np.uint8)
    found = lite.pixels(image)
    expected = (torch.from_numpy(image).permute(2, 0, 1).double() - 127) / 128
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)


# --- EfficientNet-Lite0 ---


def published(network):
    """A state dict as it is published."""
    return {
        efficientnet_lite.checkpoint_key(name): value
        for name, value in network.layers.state_dict().items()
    }


def normed(state, name, x):
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    return F.batch_norm(
        x, mean, var, state[f"{name}.weight"], state[f"{name}.bias"], eps=1e-3
    )


def same(x, weight, stride=1, groups=1):
    """TensorFlow's padding, written out: the last row and column get one more."""
    kernel = weight.shape[-1]
    for axis in (2, 3):
        size = x.shape[axis]
        out = -(-size // stride)
        lost = max((out - 1) * stride + kernel - size, 0)
        shape = list(x.shape)
        shape[axis] = lost // 2
        before = x.new_zeros(shape)
        shape[axis] = lost - lost // 2
        x = torch.cat([before, x, x.new_zeros(shape)], axis)
    return F.conv2d(x, weight, stride=stride, groups=groups)


def test_lite0_is_its_published_blocks(lite):
    torch.manual_seed(0)
    network = backbone(LITE, "random")
    for name, value in network.state_dict().items():
        if "running_var" in name:
            value.uniform_(0.5, 2)
        elif "running_mean" in name or "normalisation" in name:
            value.copy_(torch.randn(value.shape) / 3 if value.dim() else value)
    state = published(network)
    x = pixels = torch.randn(1, 3, 45, 38)
    x = F.relu6(normed(state, "_bn0", same(x, state["_conv_stem.weight"], 2)))
    # of the paper's table: stride 2 where the resolution halves
    strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1]
    for number, stride in enumerate(strides):
        block, inputs = f"_blocks.{number}", x
        if number:
            x = same(x, state[f"{block}._expand_conv.weight"])
            x = F.relu6(normed(state, f"{block}._bn0", x))
        kernel = state[f"{block}._depthwise_conv.weight"]
        x = same(x, kernel, stride, groups=len(kernel))
        x = F.relu6(normed(state, f"{block}._bn1", x))
        x = same(x, state[f"{block}._project_conv.weight"])
        x = normed(state, f"{block}._bn2", x)
        if x.shape == inputs.shape:
            x = x + inputs
    with torch.no_grad():
        torch.testing.assert_close(network(pixels), x, rtol=1e-4, atol=1e-4)


def test_the_package_of_weights_is_read_and_never_imported(lite, tmp_path, monkeypatch):
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "__init__.py").write_text("raise RuntimeError('imported')")
    torch.save(published(lite) | {"_fc.bias": torch.zeros(2)}, folder / "lite0.pth")
    spec = ModuleSpec(backbones.LITE_PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(backbones, "find_spec", {backbones.LITE_PACKAGE: spec}.get)
    assert backbone(LITE, "imagenet").checksum() == lite.checksum()
    assert backbones.LITE_PACKAGE not in sys.modules
    monkeypatch.setattr(backbones, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="package efficientnet-lite0-pytorch-m"):
        backbone(LITE, "imagenet")


# --- files ---


def test_weights_are_read_from_files_of_torch_and_of_safetensors(tmp_path):
    network = backbone(ALEXNET, "random")
    torch.nn.init.ones_(network.layers[8].bias)
    layers = network.layers.state_dict()
    state = {f"features.{name}": value for name, value in layers.items()}
    state |= {"classifier.1.bias": torch.zeros(3)}
    torch.save(state, tmp_path / "alexnet.pth")
    save_file(state, tmp_path / "alexnet.safetensors")
    for path in tmp_path.iterdir():
        assert backbone(ALEXNET, str(path)).checksum() == network.checksum()


def test_weights_of_imagenet_come_from_torchvision(monkeypatch):
    layers = backbone(ALEXNET, "random").layers.state_dict()
    state = {f"features.{name}": value + 1 for name, value in layers.items()}
    enum = torchvision.models.AlexNet_Weights

    def give(self, **options):
        assert options == {"check_hash": True, "weights_only": True}
        assert self is enum.IMAGENET1K_V1
        return state

    monkeypatch.setattr(enum, "get_state_dict", give)
    found = backbone(ALEXNET, "imagenet").layers[0].bias
    assert torch.equal(found, state["features.0.bias"])

    def unreachable(self, **options):
        raise OSError("no network")

    monkeypatch.setattr(enum, "get_state_dict", unreachable)
    with pytest.raises(ConnectionError, match=r"no network.*give its file"):
        backbone(ALEXNET, "imagenet")


def test_names_and_files_that_are_wrong_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"backbone: expected one of alexnet.*'vgg'"):
        backbone("vgg", "random")
    path = tmp_path / "weights.pth"
    with pytest.raises(FileNotFoundError, match=f"found no file {path}"):
        backbone(ALEXNET, str(path))
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=f"{path}: expected the weights of"):
        backbone(ALEXNET, str(path))
    torch.save({"features.0.weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"features.0.weight of shape \(64, 3, 11, 11"):
        backbone(ALEXNET, str(path))
    torch.save([1], path)
    with pytest.raises(ValueError, match=r"features.0.weight of .*got none"):
        backbone(ALEXNET, str(path))
    layers = backbone(ALEXNET, "random").layers.state_dict()
    layers = {f"features.{n}": x for n, x in layers.items()}
    layers["features.3.bias"][2] = torch.nan
    torch.save(layers, path)
    with pytest.raises(ValueError, match=r"infinity in 1 of 192 places of features.3"):
        backbone(ALEXNET, str(path))
    torch.save(torch.nn.Linear(1, 1), path)
    with pytest.raises(ValueError, match=f"{path}: expected the weights of"):
        backbone(ALEXNET, str(path))
