"""Boxes that are chosen without a look at the image."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torchvision.ops import box_iou

from localization import baselines
from smoothsp.data import AnnotatedImage
from smoothsp.models.box_images import overlap_scores

CANDIDATES = [
    [0.0, 0, 98, 50],
    [40, 20, 60, 30],
    [10, 10, 40, 40],
    [45, 20, 55, 30],
]


def example(box, size=(100, 50)):
    return AnnotatedImage(Path("one.jpg"), (box,), ("cup",), size=size)


def image(box):
    """An image with the candidates."""
    boxes = torch.tensor(CANDIDATES)
    return SimpleNamespace(
        examples=[example(box)],
        sizes=[(100, 50)],
        overlaps=[box_iou(boxes, torch.tensor([box])).squeeze(1)],
        candidates=lambda _: boxes,
    )


def test_each_baseline_takes_its_own_box():
    found = baselines.overlaps(image((10.0, 10.0, 40.0, 40.0)), torch.zeros(4))
    # nearly the whole image, the larger of two in the middle, and the true one itself
    assert found["largest candidate"] == [pytest.approx(900 / 4900)]
    assert found["nearest to centre"] == [0]
    assert found["best candidate"] == [1]
    found = baselines.overlaps(image((40.0, 20.0, 60.0, 30.0)), torch.zeros(4))
    assert found["nearest to centre"] == [1]


def test_the_centre_box_is_half_of_the_image_in_its_middle():
    side = 0.5**0.5
    box = [50 - 50 * side, 25 - 25 * side, 50 + 50 * side, 25 + 25 * side]
    found = baselines.overlaps(image(tuple(box)), torch.zeros(4))
    assert found["centre box"] == [pytest.approx(1, abs=1e-5)]


def test_the_mean_box_is_in_units_of_each_image():
    examples = [
        example((0.0, 0.0, 50.0, 50.0)),
        example((2.0, 2.0, 10.0, 4.0), (10, 10)),
    ]
    mean = baselines.mean_box(examples)
    torch.testing.assert_close(mean, torch.tensor([0.1, 0.1, 0.75, 0.7]))
    found = baselines.overlaps(image((10.0, 5.0, 75.0, 35.0)), mean)
    assert found["mean box of training"] == [pytest.approx(1, abs=1e-5)]


def test_chance_is_the_share_of_right_candidates():
    images = image((10.0, 10.0, 40.0, 40.0))
    assert baselines.random_corloc(images) == 0.25
    table = baselines.table(images, torch.zeros(4))
    assert table["best candidate"] == {"corloc": 1, "corloc_7": 1, "iou": 1}
    assert table["largest candidate"]["corloc"] == 0


def test_a_box_that_fits_overlaps_by_more_than_seven_tenths():
    found = overlap_scores([0.4, 0.6, 0.7, 0.8])
    assert found == {
        "corloc": 0.75,
        "corloc_7": 0.25,
        "iou": pytest.approx(0.625),
    }
