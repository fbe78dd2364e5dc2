"""Training of both models, on a few small drawn images."""

import pytest

from horse_segmentation import Config, main
from segmentation import linear
from smoothsp.models import Segmenter, load
from tests.recipes.runs import numbers

SMALL = {"limit": 8, "superpixels": 40, "eps": 0.3, "tol": 0.1}
NETWORK = {"model": "network", "limit": 8, "superpixels": 40, "epochs": 2}


@pytest.fixture(scope="session")
def horses(tmp_path_factory):
    """A whole run of the linear model."""
    config = Config(out=tmp_path_factory.mktemp("horses"), **SMALL)
    return config, main(config)


def test_training_beats_what_looks_at_no_image(horses):
    config, result = horses
    content = numbers(config.out)
    scores = content["scores"]["dev"]
    assert scores["linear, graph cut"]["iou"] == result["dev_iou"]
    assert result["dev_iou"] > scores["all background"]["iou"] == 0
    best = scores["best of these superpixels"]["iou"]
    assert best > result["dev_iou"] > 0.3
    assert set(scores) > {"ellipse", "mean mask", "superpixels alone"}
    for name in ("sheet.png", "path.png"):
        assert (config.out / name).read_bytes().startswith(b"\x89PNG")


def test_each_lambda_has_its_certificate(horses):
    content = numbers(horses[0].out)
    rows = content["history"]
    assert len(rows) > 2 and [r["lam"] for r in rows] == sorted(
        (r["lam"] for r in rows), reverse=True
    )
    assert all(0 <= row["gap"] <= linear.KAPPA * 0.3 + 1e-9 for row in rows)
    chosen = max(rows, key=lambda row: row["dev_iou"])
    for end in content["solved"].values():
        assert end["lam"] == chosen["lam"] and 0 <= end["gap"] <= 0.1


def test_a_network_is_a_segmenter_of_the_package(tmp_path):
    result = main(Config(out=tmp_path, **NETWORK))
    content = numbers(tmp_path)
    assert len(content["history"]) == 2
    assert content["scores"]["test"]["network, hinge"]["iou"] == result["test_iou"]
    model = load(tmp_path / "model")
    assert isinstance(model, Segmenter)
    assert (model.side, model.superpixels, model.loss) == (128, 40, "hinge")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"limit": 2}, "limit: expected at least 3, got 2"),
        ({"side": 20}, "side: expected at least 32, got 20"),
        ({"superpixels": 1}, "superpixels: expected at least 2, got 1"),
        ({"eps": 0.0}, "eps: expected a number between 0 and 1, got 0"),
        ({"tol": 2.0}, "tol: expected a number between 0 and 1, got 2"),
        ({"data": "nowhere"}, "data: expected a folder of images and masks"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    if "data" in wrong:
        wrong = {"data": tmp_path / wrong["data"]}
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**{"out": tmp_path / "none", "limit": 3} | wrong))
    assert "\n" not in str(caught.value)
