"""Images and masks: of folders, pairs and dictionaries, and errors that name them."""

import numpy as np
import pytest
from PIL import Image

from smoothsp.data import MaskedImage, as_masks, read_masks
from smoothsp.data.masks import shrink_image


def write(path, pixels, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **more)


def draw(number):
    image = np.full((96, 128, 3), 20 * number, np.uint8)
    mask = np.zeros((96, 128), bool)
    mask[20:60, 30 : 90 + number] = True
    return image, mask


@pytest.fixture
def horses(tmp_path):
    """Five images and masks, one of them smaller than its image."""
    for number in range(5):
        image, mask = draw(number)
        write(tmp_path / "gray" / f"{number}.jpg", image[..., 0])
        pixels = mask.astype(np.uint8) * 255
        write(
            tmp_path / "figure_ground" / f"{number}.png",
            pixels[::2, ::2] if number == 3 else pixels,
        )
    return tmp_path


def test_a_folder_is_read_by_name_and_scaled(horses):
    found = read_masks(horses)
    assert [x.name for x in found] == list("01234")
    for number, example in enumerate(found):
        whole = example.read()
        assert whole[0].shape == (96, 128, 3) and whole[1].dtype == bool
        if number != 3:
            np.testing.assert_equal(whole[1], draw(number)[1])
        image, mask = example.read(64)
        assert image.shape == (48, 64, 3) and mask.shape == (48, 64)
        assert mask.mean() == pytest.approx(whole[1].mean(), abs=0.01)


def test_images_are_never_enlarged_and_never_vanish():
    assert shrink_image(np.zeros((20, 30, 3), np.uint8), 100).shape == (20, 30, 3)
    assert shrink_image(np.zeros((4, 300, 3), np.uint8), 100).shape == (16, 100, 3)


@pytest.mark.parametrize("number", range(5))
def test_masks_of_any_kind_are_the_same(number, horses):
    image, mask = draw(1)
    path = horses / "figure_ground" / "1.png"
    kinds = [path, str(path), Image.fromarray(mask), 1 * mask, 255 * mask.astype(int)]
    (example,) = as_masks([(image, kinds[number])])
    np.testing.assert_equal(example.read(), (image, mask))
    (other,) = as_masks([{"image": Image.fromarray(image), "label": kinds[number]}])
    np.testing.assert_equal(other.read(), (image, mask))


def test_a_mask_is_turned_with_its_image(tmp_path):
    image, mask = draw(2)
    exif = Image.Exif()
    exif[0x0112] = 6
    write(tmp_path / "a.jpg", image, exif=exif)
    write(tmp_path / "b.png", mask)
    found = MaskedImage(tmp_path / "a.jpg", tmp_path / "b.png").read()
    assert found[0].shape == (128, 96, 3)
    np.testing.assert_equal(found[1], np.rot90(mask, -1))


def test_a_mask_without_figure_is_a_mask():
    image, mask = draw(1)
    assert not MaskedImage(image, 0 * mask).read()[1].any()


def refused(path, message):
    with pytest.raises((OSError, ValueError), match=message) as caught:
        for example in as_masks(path):
            example.read(64)
    assert "\n" not in str(caught.value)


def test_wrong_folders_are_one_line(horses):
    refused(horses / "nowhere", "data: expected a folder of images and masks, found")
    refused(horses / "gray", "gray: expected one of the folders images, gray, rgb, fou")
    mask = horses / "figure_ground" / "1.png"
    pixels = np.asarray(Image.open(mask))
    write(mask, pixels[:, :-9])
    refused(
        horses, r"1\.png: expected the shape of its image, 128 x 96 pixels, got 119"
    )
    write(mask, pixels // 8)
    refused(horses, r"1\.png: expected figure in values above 127, .* got at most 31")
    mask.write_bytes(b"nothing")
    refused(horses, r"1\.png: expected an image, got a file that does not decode")
    mask.unlink()
    refused(horses, r"1\.jpg: expected a mask of the same name, found no .*1\.jpg")
    write(mask, pixels)
    image = horses / "gray" / "1.jpg"
    image.write_bytes(image.read_bytes()[:300])
    refused(horses, r"1\.jpg: expected an image, got a file that does not decode")
    for path in (horses / "gray").iterdir():
        path.unlink()
    refused(horses, "gray: expected images, got none")


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.zeros((4, 4, 3), bool), TypeError, r"data\[0\]: .* mask .* \(4, 4, 3\)"),
        (np.ones((96, 128)), TypeError, r"data\[0\]: .* bool or int, got float64"),
        (np.full((96, 128), 2), ValueError, r"data\[0\]: .* labels 0 and 1, got at mo"),
        (Image.new("F", (128, 96)), ValueError, r"data\[0\]: .* 8 bits .* mode F"),
        (
            np.zeros((96, 99), bool),
            ValueError,
            r"data\[0\]: .* 128 x 96 pixels, got 99",
        ),
    ],
)
def test_wrong_masks_are_named(mask, error, message):
    (example,) = as_masks([(draw(0)[0], mask)])
    with pytest.raises(error, match=message):
        example.read()
