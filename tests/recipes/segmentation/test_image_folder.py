"""Reading of folders of images and masks, and what is said of those that are wrong."""

import itertools

import numpy as np
import pytest
from PIL import Image

from segmentation import folder
from segmentation.drawn import draw


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def horses(tmp_path):
    """Five drawn images and masks, one of them smaller than its image."""
    chance = np.random.default_rng(0)
    for number in range(5):
        image, mask = draw(chance)
        write(tmp_path / "gray" / f"{number}.jpg", image[..., 0])
        size = mask.astype(np.uint8) * 255
        write(
            tmp_path / "figure_ground" / f"{number}.png",
            size[::2, ::2] if number == 3 else size,
        )
    return tmp_path


def test_images_are_read_scaled_and_split(horses):
    parts = folder.load(horses, None, 64)
    assert {part: len(own) for part, own in parts.items()} == {
        "train": 3,
        "dev": 1,
        "test": 1,
    }
    names = [x.name for own in parts.values() for x in own]
    assert sorted(names) == list("01234")
    for own in parts.values():
        for example in own:
            assert example.image.shape == (48, 64, 3)
            assert example.mask.shape == (48, 64) and 0.02 < example.mask.mean() < 0.6
    # the same every time, and fewer are the first of these
    again = folder.load(horses, 3, 64)
    assert [x.name for own in again.values() for x in own] == names[:3]


def test_every_part_has_an_image_where_there_are_three():
    for count in range(3, 40):
        parts = folder.split(list(range(count)))
        assert min(map(len, parts.values())) >= 1
        assert [*itertools.chain(*parts.values())] == list(range(count))


def test_images_are_never_enlarged_and_never_vanish():
    assert folder.scaled(np.zeros((20, 30, 3), np.uint8), 100).shape == (20, 30, 3)
    assert folder.scaled(np.zeros((4, 300, 3), np.uint8), 100).shape == (16, 100, 3)


def refused(path, message):
    with pytest.raises((OSError, ValueError), match=message) as caught:
        folder.load(path, None, 64)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_is_one_line(horses):
    refused(horses / "nowhere", "data: expected a folder of images and masks, found")
    refused(horses / "gray", "gray: expected one of the folders images, gray, rgb, fou")
    mask = horses / "figure_ground" / "1.png"
    pixels = np.asarray(Image.open(mask))
    write(mask, pixels[:, :-9])
    refused(horses, r"1\.png: expected the shape of .*1\.jpg, 128 x 96 pixels, got 119")
    write(mask, pixels // 255)
    refused(horses, r"1\.png: expected figure in values above 127, got at most 1")
    mask.write_bytes(b"nothing")
    refused(horses, r"1\.png: expected an image, got a file that does not decode")
    mask.unlink()
    refused(horses, r"1\.jpg: expected a mask of the same name, found no .*1\.jpg")
    write(mask, pixels)
    image = horses / "gray" / "1.jpg"
    image.write_bytes(image.read_bytes()[:300])
    refused(horses, r"1\.jpg: expected an image, got a file that does not decode")
    for name in ("0", "1", "2"):
        (horses / "gray" / f"{name}.jpg").unlink()
    refused(horses, "gray: expected at least 3 images, got 2")


def test_a_mask_without_figure_is_a_mask(horses):
    mask = horses / "figure_ground" / "1.png"
    write(mask, np.zeros((96, 128), np.uint8))
    parts = folder.load(horses, None, 64)
    found = [x for own in parts.values() for x in own if x.name == "1"]
    assert not found[0].mask.any()
