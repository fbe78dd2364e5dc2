"""COCO files: where their images are, crowds, turned images, and bad ones."""

import json

import numpy as np
import pytest
from PIL import Image

from smoothsp.data import read_box_splits, read_boxes

BOX = (4.0, 5.0, 20.0, 21.0)


def coco(**changes):
    """One image of 40 x 30 pixels with a cup, a crowd of pots, and another without."""
    found = {
        "info": {},
        "images": [
            {"id": 7, "file_name": "a.png", "width": 40, "height": 30},
            {"id": 8, "file_name": "b.png", "width": 40, "height": 30},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 3, "bbox": [4, 5, 16, 16]},
            {
                "id": 2,
                "image_id": 7,
                "category_id": 1,
                "bbox": [0, 0, 2.5, 3],
                "iscrowd": 1,
                "segmentation": {"counts": [1], "size": [30, 40]},
            },
        ],
        "categories": [{"id": 1, "name": "pot"}, {"id": 3, "name": "cup"}],
    }
    return found | changes


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (40, 30)).save(tmp_path / "images" / f"{name}.png")
    (tmp_path / "coco.json").write_text(json.dumps(coco()))
    return tmp_path


def check(found, images):
    first, second = found
    assert (first.path, first.boxes, first.labels) == (
        images / "a.png",
        (BOX,),
        ("cup",),
    )
    assert first.difficult == (("pot", (0, 0, 2.5, 3)),)
    assert first.size == (40, 30)
    assert (second.name, second.boxes, second.labels) == ("b", (), ())


def test_boxes_of_a_coco_file_are_corners_and_crowds_are_difficult(folder):
    check(read_boxes(folder / "coco.json"), folder / "images")


@pytest.mark.parametrize(
    ("file", "images"),
    [
        ("coco.json", "."),
        ("result.json", "images"),
        ("train/_annotations.coco.json", "train"),
        ("annotations/instances_train.json", "images"),
        ("annotations/instances_train.json", "train"),
        ("annotations/instances_train.json", "images/train"),
    ],
)
def test_images_are_found_where_tools_put_them(file, images, folder):
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    (folder / images).mkdir(parents=True, exist_ok=True)
    for name in ("a", "b"):
        image = folder / "images" / f"{name}.png"
        image.rename(folder / images / f"{name}.png")
    path.write_text(json.dumps(coco()))
    found = read_boxes(path)
    assert [one.path.resolve() for one in found] == [
        (folder / images / f"{name}.png").resolve() for name in ("a", "b")
    ]
    check(found, found[0].path.parent)
    if "train" in file:
        check(read_boxes(folder), found[0].path.parent)


def test_the_folder_of_images_may_be_given(folder):
    (folder / "images").rename(folder / "elsewhere")
    with pytest.raises(
        ValueError, match=r"image 1: expected the file 'a.png' .*images"
    ):
        read_boxes(folder / "coco.json")
    check(
        read_boxes(folder / "coco.json", images=folder / "elsewhere"),
        folder / "elsewhere",
    )


@pytest.mark.parametrize(
    "name",
    [
        "../a.png",
        "x/../../a.png",
        "..\\a.png",
        "C:\\a.png",
        "{folder}/a.png",
        "//a.png",
    ],
)
@pytest.mark.parametrize("images", [None, "images"])
def test_no_name_leads_out_of_the_folder(name, images, folder):
    (folder / "data").mkdir()
    Image.new("RGB", (40, 30)).save(folder / "a.png")
    whole = coco()
    whole["images"][0]["file_name"] = name.format(folder=folder)
    path = folder / "data" / "coco.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(
        ValueError, match=r"image 1: expected a file_name within .*, go"
    ):
        read_boxes(path, images=images and folder / images)


@pytest.mark.parametrize("name", ["{folder}/images/a.png", "x\\..\\a.png", "y/a.png"])
def test_names_may_be_whole_paths_and_of_other_systems(name, folder):
    whole = coco()
    whole["images"][0]["file_name"] = name.format(folder=folder)
    (folder / "coco.json").write_text(json.dumps(whole))
    assert read_boxes(folder / "coco.json")[0].path == folder / "images" / "a.png"


def test_parts_of_a_folder_are_files(folder):
    (folder / "coco.json").rename(folder / "train.json")
    (folder / "valid.json").write_text(json.dumps(coco(annotations=[])))
    (folder / "captions_train.json").write_text("{}")
    with pytest.raises(
        FileNotFoundError, match="one COCO file of the part train, got ca"
    ):
        read_box_splits(folder)
    (folder / "train.json").rename(folder / "instances_train.json")
    found = read_box_splits(folder)
    assert {part: len(own) for part, own in found.items()} == {"train": 2, "val": 2}
    check(read_boxes(folder), folder / "images")
    assert read_boxes(folder, part="val")[0].boxes == ()
    with pytest.raises(FileNotFoundError, match="no JSON file of test"):
        read_boxes(folder, part="test")


def test_boxes_turn_with_the_image_if_the_size_says_so(folder):
    pixels = np.zeros((30, 40, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(folder / "images" / "a.png", exif=exif)
    first, _ = read_boxes(folder / "coco.json")
    assert (first.size, first.boxes) == ((30, 40), ((9, 4, 25, 20),))
    whole = coco()
    whole["images"][0] |= {"width": 30, "height": 40}
    (folder / "coco.json").write_text(json.dumps(whole))
    assert read_boxes(folder / "coco.json")[0].boxes == (BOX,)


def annotation(**changes):
    row = {"image_id": 7, "category_id": 3, "bbox": [4, 5, 16, 16]} | changes
    return coco(annotations=[*coco()["annotations"], row])


OBJECT = r"image 1 \(a.png\): object 3 \(cup\): "
BOXES = {
    "three numbers": (
        annotation(bbox=[1, 2, 3]),
        OBJECT + "expected bbox of left, top, w",
    ),
    "no box": (annotation(bbox=None), OBJECT + "expected bbox of left"),
    "words": (annotation(bbox=["1", 2, 3, 4]), OBJECT + "expected bbox of left"),
    "booleans": (annotation(bbox=[True, 2, 3, 4]), OBJECT + "expected bbox of left"),
    "not finite": (annotation(bbox=[1, 2, 3, float("nan")]), OBJECT + "expected bbox"),
    "too large": (annotation(bbox=[1, 2, 3, 10**400]), OBJECT + "expected bbox"),
    "empty": (annotation(bbox=[1, 2, 0, 4]), OBJECT + "expected a box with an area"),
    "outside": (
        annotation(bbox=[50, 2, 3, 4]),
        OBJECT + "expected a box inside the im",
    ),
    "no image": (
        annotation(image_id=9),
        "annotation 3: expected a listed id as image_id",
    ),
    "no category": (
        annotation(category_id=2),
        "annotation 3: expected a listed id as cat",
    ),
    "a list": (
        annotation(image_id=[7]),
        "annotation 3: expected a listed id as ima",
    ),
}


@pytest.mark.parametrize("fault", BOXES)
def test_a_bad_box_costs_itself_only(fault, folder, capsys):
    whole, message = BOXES[fault]
    path = folder / "coco.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=f"{path}: {message}") as caught:
        read_boxes(path)
    assert "\n" not in str(caught.value)
    check(read_boxes(path, skip_bad=True), folder / "images")
    assert capsys.readouterr().err.startswith(f"warning: left out: {path}: ")


IMAGES = {
    "another size": ({"width": 41}, "image 2 .* expected the size of .*, 40 x 30"),
    "no size": ({"width": "x"}, "image 2 .* expected the size of .*, got x x 30"),
    "no file": ({"file_name": "c.png"}, "image 2: expected the file 'c.png' in"),
    "no name": ({"file_name": 3}, "image 2: expected a file_name, got 3"),
    "a null": ({"file_name": "b\0"}, "image 2: expected a file_name, got"),
}


@pytest.mark.parametrize("fault", IMAGES)
def test_a_bad_image_is_named_and_left_out(fault, folder):
    change, message = IMAGES[fault]
    whole = coco()
    whole["images"][1] |= change
    path = folder / "coco.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=message):
        read_boxes(path)
    assert [one.name for one in read_boxes(path, skip_bad=True)] == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected JSON as of COCO, got Expecting"),
        ("[" * 10**5, "expected JSON as of COCO, got maximum recursion"),
        ("[]", "expected an object with images, annotations and categories, got list"),
        (
            "{}",
            "expected a list of objects as images, got none. Is it a COCO file of b",
        ),
        (
            '{"images": [{"id": 1}, {"id": 1}]}',
            "images 2: expected an id of its own, g",
        ),
        ('{"images": [3]}', "expected a list of objects as images, got list"),
    ],
)
def test_files_that_are_not_of_coco_are_named(content, message, folder):
    path = folder / "coco.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"{path}: {message}"):
        read_boxes(path, skip_bad=True)


def test_a_file_that_is_not_there_is_named(folder):
    with pytest.raises(
        FileNotFoundError, match=r"none\.json: expected a COCO file or a f"
    ):
        read_boxes(folder / "none.json")
