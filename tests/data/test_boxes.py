"""Reading of folders in Pascal VOC layout, and what is said of bad ones."""

import os
import re
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from localization import folder as localization_folder
from localization.folder import read
from smoothsp.data import images, read_boxes
from smoothsp.data.boxes import read_annotation

OBJECT = "<object><name>{}</name><bndbox>{}</bndbox></object>"
DIFFICULT = "<difficult>{}</difficult></object>"
SIZE = "<size><width>{}</width><height>{}</height></size>"


def corners(*box):
    names = ("xmin", "ymin", "xmax", "ymax")
    return "".join(f"<{n}>{v}</{n}>" for n, v in zip(names, box, strict=True))


def to_xml(*objects, before=""):
    """An annotation of labels and boxes, and of which objects are difficult."""
    text = before
    for kind, box, *difficult in objects:
        text += OBJECT.format(kind, corners(*box))
        for value in difficult:
            text = text.removesuffix("</object>") + DIFFICULT.format(value)
    return f"<annotation>{text}</annotation>"


def annotate(folder, name, *objects):
    path = folder / "Annotations" / f"{name}.xml"
    path.write_text(to_xml(*objects))
    return path


def fill(folder):
    """One image a list, 40 x 30 pixels, with one cup and two pots; another without."""
    for sub in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / sub).mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    pots = [("pot", (1, 1, 40, 30)), ("pot", (3, 3, 9, 9))]
    for part in ("train", "val", "test"):
        for name, cups in ((part, [("cup", (5, 6, 20, 21))]), (f"{part}-without", [])):
            Image.fromarray(pixels).save(folder / "JPEGImages" / f"{name}.jpg")
            annotate(folder, name, *cups, *pots)
        names = f"{part}\n\n{part}-without -1\n"
        (folder / "ImageSets" / "Main" / f"{part}.txt").write_text(names)
    return folder


@pytest.fixture
def folder(tmp_path):
    return fill(tmp_path)


@pytest.fixture(scope="module")
def drawn_folder(tmp_path_factory):
    """The same folder for all examples of a drawn test, which each write over it."""
    return fill(tmp_path_factory.mktemp("drawn"))


def test_images_with_exactly_one_box_are_taken(folder):
    splits = read(folder, "cup")
    assert [[e.name for e in part] for part in splits.lists.values()] == [
        ["train"],
        ["val"],
        ["test"],
    ]
    assert (splits.num_without, splits.num_multi_object, splits.skipped) == (3, 0, [])
    with pytest.raises(ValueError, match=r"train: expected images with exactly"):
        read(folder, "pot")


# Corners of boxes with an area in the image.
BOXES = st.tuples(st.integers(1, 39), st.integers(1, 29)).flatmap(
    lambda x: st.tuples(
        *map(st.just, x), st.integers(x[0] + 1, 40), st.integers(x[1] + 1, 30)
    )
)
OBJECTS = st.lists(
    st.tuples(st.sampled_from(["cup", "pot"]), BOXES, st.sampled_from("01"))
)


@given(objects=OBJECTS)
def test_drawn_boxes_count_pixels_from_zero_and_end_outside(objects, drawn_folder):
    annotate(drawn_folder, "train", *objects)
    right = [[], []]
    for kind, (left, top, end, bottom), difficult in objects:
        right[difficult == "1"].append((kind, (left - 1, top - 1, end, bottom)))
    example = read_boxes(drawn_folder)[0]
    assert list(zip(example.labels, example.boxes, strict=True)) == right[False]
    assert list(example.difficult) == right[True]
    assert (example.name, example.size) == ("train", (40, 30))


@pytest.mark.parametrize(
    ("box", "part"),
    [((-4, -5, 9, 9), (0, 0, 9, 9)), ((5, 6, 99, 99), (4, 5, 40, 30))],
)
def test_what_is_outside_the_image_is_cut_off(box, part, folder):
    annotate(folder, "train", ("cup", box))
    assert read_boxes(folder)[0].boxes == (part,)


def test_a_list_of_test_images_may_be_missing(folder):
    (folder / "ImageSets" / "Main" / "test.txt").unlink()
    assert set(read(folder, "cup").lists) == {"train", "val"}


DECLARED = '<?xml version="1.0" encoding="{}"?>\n{}'
NO_GB2312 = DECLARED.format("gb2312", "<a>").encode() + b"\xff</a>"
ENTITY = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
LAUGHS = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><a>&y;</a>'


def cup(*box):
    return to_xml(("cup", box))


# Content of the annotation or of the image, if any, and what is said of it.
FAULTS = {
    "unknown encoding": (DECLARED.format("x", "<a/>"), "plain XML .*ng: x"),
    "no gb2312": (NO_GB2312, "plain XML .* 'gb2312' codec"),
    "half a letter": (b"\xff\xfe<\0a", "plain XML .* truncated data"),
    "latin-1": (b"<annotation>" + b" " * 5000 + b"\xe9", "plain XML .* byte 0xe9"),
    "a page": (b"<html/>", "an <annotation>, got <html>"),
    "two roots": (b"<a/><a/>", "plain XML .* junk after document element"),
    "a null": (b"<a>\0</a>", "plain XML .*invalid token"),
    "no XML": (b"<annotation><object>", "plain XML"),
    "empty file": (b"", "plain XML"),
    "entity": (ENTITY, "plain XML .* it has a <!DOCTYPE>"),
    "laughs": (LAUGHS, "plain XML .* it has a <!DOCTYPE>"),
    "deep": ("<annotation>" + "<a>" * 10**5, "plain XML"),
    "large": (" " * (2**24 + 1), "plain XML .* more than 16,777,216 bytes"),
    "empty": (cup(5, 6, 5, 21), r".* an empty one from \(5, 6\) to \(5, 21\)"),
    "flat": (cup(5, 6, 9, 6), r".* an empty one from \(5, 6\) to \(9, 6\)"),
    "inverted": (cup(9, 6, 5, 21), r".* an inverted one from \(9, 6\)"),
    "no number": (cup("a", 6, 5, 21), "a number as xmin, got 'a'"),
    "nan": (cup(1, "nan", 5, 21), "a number as ymin, got 'nan'"),
    "infinite": (cup(1, 2, "inf", 21), "a number as xmax, got 'inf'"),
    "outside": (cup(50, 6, 60, 21), "a box inside the image of 40 x 30 pixels"),
    "undecodable": (b"no image", "an image, got a file that does not decode"),
    "half": (..., "an image, got a file that does not decode"),
    "image missing": (None, "the files of 'train', found no {path}"),
    "annotation missing": (None, "the files of 'train', found no {path}"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_file_is_named_or_skipped_and_counted(fault, folder):
    content, message = FAULTS[fault]
    path = folder / "Annotations" / "train.xml"
    if fault in ("undecodable", "half", "image missing"):
        path = folder / "JPEGImages" / "train.jpg"
    at = path
    if content is None:
        path.unlink()
        at = f"{folder / 'ImageSets' / 'Main' / 'train.txt'}:1"
    elif content is ...:
        path.write_bytes(path.read_bytes()[:600])
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    object_1 = r": object 1 \(cup\)" if "<name>cup" in str(content) else ""
    expected = f"{at}{object_1}: expected {message.format(path=path)}"
    with pytest.raises(ValueError, match=f"^{expected}") as raised:
        read(folder, "cup")
    # not the whole file
    assert len(str(raised.value)) < 500
    assert str(raised.value).count("--skip-bad") == 1
    # another image to train on
    shutil.copy(
        folder / "JPEGImages" / "val.jpg", folder / "JPEGImages" / "another.jpg"
    )
    annotate(folder, "another", ("cup", (5, 6, 20, 21)))
    with (folder / "ImageSets" / "Main" / "train.txt").open("a") as sink:
        sink.write("another\n")
    splits = read(folder, "cup", skip_bad=True)
    assert [e.name for e in splits.lists["train"]] == ["another"]
    assert len(splits.skipped) == 1
    assert re.match(expected, splits.skipped[0])
    assert splits.skipped[0] in splits.summary()
    assert "skipped 1 bad" in splits.summary()


ENCODINGS = ["gb2312", "gb18030", "shift_jis", "euc-kr", "big5", "utf-16"]
# what some programs say, and write
MISTAKES = [("utf-16", "utf-16-le"), ("utf-16", "utf-16-be"), ("utf-16", "utf-8")]
MISTAKES += [("utf-8", "utf-8-sig"), ("gb2312", "ascii"), ("iso-8859-1", "latin-1")]


@pytest.mark.parametrize(
    ("declared", "written"), [*((x.upper(), x) for x in ENCODINGS), *MISTAKES]
)
def test_annotations_are_read_in_any_encoding(declared, written, folder):
    word = {"ascii": "cup", "latin-1": "été", "euc-kr": "컵"}.get(written, "杯")
    path = annotate(folder, "train", (word, (5, 6, 20, 21)))
    text = DECLARED.format(declared, path.read_text())
    path.write_bytes(text.encode(written))
    for part in ("val", "test"):
        annotate(folder, part, (word, (5, 6, 20, 21)))
    splits = read(folder, word)
    for part in ("train", "val"):
        assert splits.lists[part][0].boxes == ((4, 5, 20, 21),)


def test_a_bad_box_of_another_class_costs_only_that_box(folder):
    path = annotate(folder, "train", ("pot", (9, 9, 9, 12)), ("cup", (5, 6, 20, 21)))
    with pytest.raises(ValueError, match=r"object 1 \(pot\): expected a box with"):
        read(folder, "cup")
    splits = read(folder, "cup", skip_bad=True)
    assert [e.name for e in splits.lists["train"]] == ["train"]
    assert [message.split(":")[0] for message in splits.skipped] == [str(path)]


def test_a_bad_box_of_the_class_costs_the_image_even_beside_a_good_one(folder):
    annotate(folder, "train", ("cup", (9, 9, 9, 12)), ("cup", (5, 6, 20, 21)))
    with pytest.raises(ValueError, match=r"train: expected images with exactly"):
        read(folder, "cup", skip_bad=True)


def test_a_class_that_never_occurs_is_answered_with_those_that_do(folder):
    with pytest.raises(
        ValueError, match=r"class: 'dog' never occurs in .*pot \(6\), cup \(3\)"
    ):
        read(folder, "dog")


def test_a_folder_of_another_layout_is_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a folder in Pascal VOC"):
        read(tmp_path / "JPEGImages", "cup")
    path = folder / "ImageSets" / "Main" / "val.txt"
    path.unlink()
    with pytest.raises(ValueError, match=rf"{path}: expected a list of images"):
        read(folder, "cup")
    path.write_bytes(b"\xff\xfea")
    with pytest.raises(ValueError, match=rf"{path}: expected a list of images"):
        read(folder, "cup")


def test_pixels_are_turned_as_exif_says(tmp_path):
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[0] = (200, 100, 50)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=turned)
    rotated = images.read_image(tmp_path / "a.png")
    assert np.array_equal(rotated, np.rot90(pixels, -1))
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "grey.png")
    assert images.read_image(tmp_path / "grey.png").shape == (4, 6, 3)
    grey = images.read_image(tmp_path / "grey.png", "L")
    assert np.array_equal(grey, pixels[:, :, 0])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_pixels_of_more_than_8_bits_are_refused(dtype, tmp_path):
    Image.fromarray(np.full((4, 6), 300, dtype)).save(tmp_path / "deep.tiff")
    for mode in ("RGB", "L"):
        with pytest.raises(
            ValueError, match=r"deep.tiff: .*: save it with 8 bits a ch"
        ):
            images.read_image(tmp_path / "deep.tiff", mode)
    with pytest.raises(ValueError, match="expected an image, found no such file"):
        images.read_image(tmp_path / "none.png")


def test_endings_may_be_capitals_and_hidden_files_are_none(tmp_path):
    for name in ("b.JPG", "a.png", "._a.png", "c.txt"):
        (tmp_path / name).touch()
    paths = images.list_images(tmp_path)
    assert [path.name for path in paths] == ["a.png", "b.JPG"]


def test_lists_may_begin_with_a_mark_and_images_end_in_capitals(folder):
    path = folder / "ImageSets" / "Main" / "train.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    image = folder / "JPEGImages" / "train.jpg"
    image.rename(image.with_suffix(".JPG"))
    (example,) = read(folder, "cup").lists["train"]
    assert example.path.name == "train.JPG"


# --- download ---

SETS = ("trainval", "test")


def test_download_asks_torchvision_for_all_of_voc_2007_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        localization_folder,
        "VOCDetection",
        lambda root, **options: asked.append((root, options)),
    )
    for _ in range(2):
        folder = localization_folder.download(tmp_path / "voc")
    assert folder == tmp_path / "voc" / "VOCdevkit" / "VOC2007"
    both = [{"year": "2007", "image_set": s, "download": True} for s in SETS]
    assert asked == [(str(tmp_path / "voc"), options) for options in both]


def test_a_download_that_fails_says_what_to_do(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("File not found or corrupted.")

    monkeypatch.setattr(localization_folder, "VOCDetection", fails)
    with pytest.raises(
        ConnectionError, match=r"fetch VOC 2007 trainval, got File.*give --data"
    ):
        localization_folder.download(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- lists that are not there, and masks ---


def test_without_a_list_of_test_images_half_of_val_is_held_out(folder):
    main = folder / "ImageSets" / "Main"
    (main / "test.txt").unlink()
    (main / "val.txt").write_text("val\ntest\ntrain\n")
    splits = read(folder, "cup")
    names = {
        part: [e.name for e in examples] for part, examples in splits.lists.items()
    }
    assert names == {"train": ["train"], "val": ["val", "train"], "test": ["test"]}
    assert "every second one of val is held out" in splits.summary()


def masked(folder, name, *box, size=(40, 30)):
    pixels = np.zeros((size[1], size[0]), np.uint8)
    left, top, right, bottom = box
    pixels[top:bottom, left:right] = 255
    for sub in ("figure_ground", "gray"):
        (folder / sub).mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / sub / f"{name}.png")


def test_boxes_are_drawn_around_masks(tmp_path):
    for number in range(6):
        masked(tmp_path, f"horse{number}", 4, 5 + number, 20, 21)
    splits = read(tmp_path, "horse")
    names = {
        part: [e.name for e in examples] for part, examples in splits.lists.items()
    }
    assert names == {
        "train": ["horse0", "horse1", "horse2", "horse5"],
        "val": ["horse3"],
        "test": ["horse4"],
    }
    for number, name in enumerate(names["train"][:3]):
        example = splits.lists["train"][number]
        assert (example.name, example.size) == (name, (40, 30))
        assert example.boxes[0] == (4, 5 + number, 20, 21)
    assert "three are to train on" in splits.summary()
    # what is left out takes nobody's place
    masked(tmp_path, "horse5", 0, 0, 0, 0)
    masked(tmp_path, "horse0", 0, 0, 0, 0)
    masked(tmp_path, "horse6", 4, 5, 20, 21)
    splits = read(tmp_path, "horse", skip_bad=True)
    assert [e.name for e in splits.lists["test"]] == ["horse6"]


def test_masks_that_are_wrong_are_named(tmp_path):
    for number in range(5):
        masked(tmp_path, f"horse{number}", 4, 5, 20, 21)
    masked(tmp_path, "horse5", 0, 0, 0, 0)
    with pytest.raises(ValueError, match=r"horse5.png: expected a figure above 127"):
        read(tmp_path, "horse")
    assert len(read(tmp_path, "horse", skip_bad=True).skipped) == 1
    Image.new("L", (9, 9)).save(tmp_path / "gray" / "horse0.png")
    (tmp_path / "figure_ground" / "horse5.png").unlink()
    with pytest.raises(ValueError, match=r"expected 9 x 9 pixels as in .*got 40 x 30"):
        read(tmp_path, "horse")
    (tmp_path / "figure_ground" / "horse3.png").unlink()
    with pytest.raises(ValueError, match="figure_ground: expected at least 5 masks"):
        read(tmp_path, "horse", skip_bad=True)
    shutil.rmtree(tmp_path / "gray")
    with pytest.raises(FileNotFoundError, match="expected images in gray or rgb"):
        read(tmp_path, "horse")


# --- what cameras and annotators note ---


@pytest.mark.parametrize("orientation", range(1, 9))
@given(box=BOXES)
def test_boxes_turn_with_the_image_if_the_size_says_so(orientation, box, drawn_folder):
    left, top, end, bottom = box
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[top - 1 : bottom, left - 1 : end] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = drawn_folder / "turned.png"
    Image.fromarray(pixels).save(path, exif=exif)
    turned = images.read_image(path)
    rows, columns = (np.flatnonzero(turned[..., 0].any(axis)) for axis in (1, 0))
    sideways = orientation > 4
    size = (30, 40) if sideways else (40, 30)
    assert turned.shape[1::-1] == size
    box_of_turned = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    # as it is stored, turned, or unknown
    plain = (left - 1, top - 1, end, bottom)
    for said, drawn, right in (
        ((40, 30), box, box_of_turned if sideways else plain),
        (size, (1, 1, 2, 30), (0, 0, 2, 30)),
        ((0, 0), (1, 1, 2, 30), (0, 0, 2, 30)),
    ):
        text = to_xml(("cup", drawn), before=SIZE.format(*said))
        path.with_suffix(".xml").write_text(text)
        example = read_annotation(path.with_suffix(".xml"), path)
        assert (example.size, example.boxes) == (size, (right,))
    # the mask of an image that lies on its side
    mask = drawn_folder / "mask.png"
    Image.fromarray(pixels[..., 0]).save(mask)
    mask_pixels = images.read_mask(mask, path)
    assert (mask_pixels == (turned if sideways else pixels)[..., 0]).all()


@pytest.mark.parametrize("size", [(41, 30), (30, 40), ("x", 30), (0, 30)])
def test_an_annotation_of_another_size_is_refused(size, folder):
    path = folder / "Annotations" / "train.xml"
    path.write_text(to_xml(("cup", (5, 6, 20, 21)), before=SIZE.format(*size)))
    expected = rf"{path}: expected the size of .*, 40 x 30 pixels, got {size[0]} x"
    with pytest.raises(ValueError, match=expected):
        read(folder, "cup")


def test_difficult_objects_are_left_out(folder):
    annotate(folder, "train", ("cup", (5, 6, 20, 21), "1"))
    with pytest.raises(ValueError, match=r"train: expected images with exactly one"):
        read(folder, "cup")
    annotate(folder, "train", ("cup", (5, 6, 20, 21), "0"))
    annotate(folder, "train-without", ("cup", (5, 6, 20, 21), " true "))
    splits = read(folder, "cup")
    assert [example.name for example in splits.lists["train"]] == ["train"]
    assert splits.num_difficult == 1
    assert "1 with one that is difficult" in splits.summary()


@pytest.mark.parametrize("line", ["my cup 1", "my cup 1  1", "my cup 1 -1"])
def test_names_with_blanks_and_bitmaps_are_read(line, folder):
    image = Image.open(folder / "JPEGImages" / "train.jpg")
    image.save(folder / "JPEGImages" / "my cup 1.bmp")
    annotation = folder / "Annotations" / "train.xml"
    annotation.rename(annotation.with_name("my cup 1.xml"))
    (folder / "ImageSets" / "Main" / "train.txt").write_text(f"{line}\n")
    assert read(folder, "cup").lists["train"][0].name == "my cup 1"


def large(path):
    # the size in the header alone
    Image.new("1", (8, 8)).save(path, "bmp")
    content = bytearray(path.read_bytes())
    content[18:26] = (10**5).to_bytes(4, "little") + (1500).to_bytes(4, "little")
    path.write_bytes(content)


def pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "message"), [(large, "decompression bomb"), (pipe, "no regular file")]
)
def test_images_that_would_take_the_memory_or_wait_are_named(make, message, tmp_path):
    path = tmp_path / "a.bmp"
    make(path)
    with pytest.raises(images.BadFile, match=message):
        images.read_image(path)


@pytest.mark.parametrize(
    "name", ["../{other}/train", "{folder}/{other}/train", "x/../../a"]
)
def test_no_name_of_a_list_leads_out_of_the_folder(name, folder):
    # where the files would be found
    shutil.copytree(folder / "JPEGImages", folder / "Annotations" / "JPEGImages")
    name = name.format(folder=folder, other="Annotations")
    (folder / "ImageSets" / "Main" / "train.txt").write_text(f"{name}\n")
    with pytest.raises(ValueError, match=r"train\.txt:1: expected a name within .*got"):
        read_boxes(folder)
    assert read_boxes(folder, skip_bad=True) == []
