"""Reading of folders in Pascal VOC layout, and what is said of bad ones."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from localization import folder as localization_folder
from localization.folder import read
from smoothsp.data import images, read_boxes

OBJECT = "<object><name>{}</name><bndbox>{}</bndbox></object>"


def corners(*box):
    names = ("xmin", "ymin", "xmax", "ymax")
    return "".join(f"<{n}>{v}</{n}>" for n, v in zip(names, box, strict=True))


def annotate(folder, name, *objects):
    text = "".join(OBJECT.format(kind, corners(*box)) for kind, box in objects)
    path = folder / "Annotations" / f"{name}.xml"
    path.write_text(f"<annotation>{text}</annotation>")
    return path


@pytest.fixture
def folder(tmp_path):
    """One image a list, 40 x 30 pixels, with one cup and two pots; another without."""
    for sub in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (tmp_path / sub).mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    for part in ("train", "val", "test"):
        for name in (part, f"{part}-without"):
            Image.fromarray(pixels).save(tmp_path / "JPEGImages" / f"{name}.jpg")
        pots = [("pot", (1, 1, 40, 30)), ("pot", (3, 3, 9, 9))]
        annotate(tmp_path, part, ("cup", (5, 6, 20, 21)), *pots)
        annotate(tmp_path, f"{part}-without", *pots)
        names = f"{part}\n\n{part}-without -1\n"
        (tmp_path / "ImageSets" / "Main" / f"{part}.txt").write_text(names)
    return tmp_path


def test_images_with_exactly_one_box_are_taken(folder):
    found = read(folder, "cup")
    assert [[e.name for e in part] for part in found.lists.values()] == [
        ["train"],
        ["val"],
        ["test"],
    ]
    assert (found.without, found.several, found.skipped) == (3, 0, [])
    with pytest.raises(ValueError, match=r"train: expected images with exactly"):
        read(folder, "pot")


def test_boxes_count_pixels_from_zero_and_end_outside(folder):
    assert read(folder, "cup").lists["train"][0].boxes[0] == (4, 5, 20, 21)


def test_a_list_of_test_images_may_be_missing(folder):
    (folder / "ImageSets" / "Main" / "test.txt").unlink()
    assert set(read(folder, "cup").lists) == {"train", "val"}


def damage_box(*box):
    def damage(folder):
        path = annotate(folder, "train", ("cup", box))
        return f"{path}: object 1 (cup): "

    return damage


def undecodable(folder):
    path = folder / "JPEGImages" / "train.jpg"
    path.write_bytes(b"no image")
    return f"{path}: expected an image, got a file that does not decode"


def half_an_image(folder):
    path = folder / "JPEGImages" / "train.jpg"
    path.write_bytes(path.read_bytes()[:600])
    return f"{path}: expected an image, got a file that does not decode"


def image_missing(folder):
    path = folder / "JPEGImages" / "train.jpg"
    path.unlink()
    where = folder / "ImageSets" / "Main" / "train.txt"
    return f"{where}:1: expected the files of 'train', found no {path}"


def annotation_missing(folder):
    path = folder / "Annotations" / "train.xml"
    path.unlink()
    return f"expected the files of 'train', found no {path}"


def annotation(text):
    def damage(folder):
        path = folder / "Annotations" / "train.xml"
        path.write_text(text)
        return f"{path}: expected plain XML"

    return damage


def encoded(content, expected="plain XML"):
    def damage(folder):
        path = folder / "Annotations" / "train.xml"
        path.write_bytes(content)
        return f"{path}: expected {expected}"

    return damage


ENTITY = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
LAUGHS = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><a>&y;</a>'
FAULTS = {
    "unknown encoding": (
        encoded(b'<?xml version="1.0" encoding="x"?><a/>'),
        "unknown encoding: x",
    ),
    "no gb2312": (
        encoded(b'<?xml version="1.0" encoding="gb2312"?><a>\xff</a>'),
        "gb231",
    ),
    "half a letter": (encoded(b"\xff\xfe<\0a"), "truncated data"),
    "latin-1": (encoded(b"<annotation>" + b" " * 5000 + b"\xe9"), "decode byte 0xe9"),
    "a page": (encoded(b"<html/>", "an <annotation>"), "got <html>"),
    "two roots": (encoded(b"<a/><a/>"), "junk after document element"),
    "a null": (encoded(b"<a>\0</a>"), "invalid token"),
    "empty": (damage_box(5, 6, 5, 21), r"an empty one from \(5, 6\) to \(5, 21\)"),
    "inverted": (damage_box(9, 6, 5, 21), r"an inverted one from \(9, 6\)"),
    "no number": (damage_box("a", 6, 5, 21), "expected a number as xmin, got 'a'"),
    "nan": (damage_box(1, "nan", 5, 21), "expected a number as ymin, got 'nan'"),
    "infinite": (damage_box(1, 2, "inf", 21), "expected a number as xmax, got 'inf'"),
    "undecodable": (undecodable, "does not decode"),
    "half": (half_an_image, "does not decode"),
    "image missing": (image_missing, r"train.txt:1"),
    "annotation missing": (annotation_missing, r"train.txt:1"),
    "no XML": (annotation("<annotation><object>"), "plain XML"),
    "empty file": (annotation(""), "plain XML"),
    "entity": (annotation(ENTITY), "it has a <!DOCTYPE>"),
    "laughs": (annotation(LAUGHS), "it has a <!DOCTYPE>"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_file_is_named_or_skipped_and_counted(fault, folder):
    damage, message = FAULTS[fault]
    expected = damage(folder)
    with pytest.raises(ValueError, match=message) as raised:
        read(folder, "cup")
    assert expected in str(raised.value)
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
    found = read(folder, "cup", skip_bad=True)
    assert [e.name for e in found.lists["train"]] == ["another"]
    assert len(found.skipped) == 1
    assert expected in found.skipped[0] in found.summary()
    assert "skipped 1 bad" in found.summary()


DECLARED = '<?xml version="1.0" encoding="{}"?>\n{}'


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        ("gb2312", "gb2312"),
        ("GB18030", "gb18030"),
        ("Shift_JIS", "shift_jis"),
        ("euc-kr", "euc-kr"),
        ("big5", "big5"),
        ("utf-16", "utf-16"),
        ("utf-16", "utf-16-le"),
        ("utf-16", "utf-16-be"),
        # what some programs say, and write
        ("utf-16", "utf-8"),
        ("utf-8", "utf-8-sig"),
        ("gb2312", "ascii"),
        ("iso-8859-1", "latin-1"),
    ],
)
def test_annotations_are_read_in_any_encoding(declared, written, folder):
    word = {"ascii": "cup", "latin-1": "été", "euc-kr": "컵"}.get(written, "杯")
    path = annotate(folder, "train", (word, (5, 6, 20, 21)))
    text = DECLARED.format(declared, path.read_text())
    path.write_bytes(text.encode(written))
    for part in ("val", "test"):
        annotate(folder, part, (word, (5, 6, 20, 21)))
    found = read(folder, word)
    assert (
        found.lists["train"][0].boxes[0]
        == found.lists["val"][0].boxes[0]
        == (4, 5, 20, 21)
    )


def test_a_bad_box_of_another_class_costs_only_that_box(folder):
    path = annotate(folder, "train", ("pot", (9, 9, 9, 12)), ("cup", (5, 6, 20, 21)))
    with pytest.raises(ValueError, match=r"object 1 \(pot\): expected a box with"):
        read(folder, "cup")
    found = read(folder, "cup", skip_bad=True)
    assert [e.name for e in found.lists["train"]] == ["train"]
    assert [message.split(":")[0] for message in found.skipped] == [str(path)]


def test_a_bad_box_of_the_class_costs_the_image_even_beside_a_good_one(folder):
    annotate(folder, "train", ("cup", (9, 9, 9, 12)), ("cup", (5, 6, 20, 21)))
    with pytest.raises(ValueError, match=r"train: expected images with exactly"):
        read(folder, "cup", skip_bad=True)


def test_a_box_outside_its_image_is_named(folder):
    annotate(folder, "train", ("cup", (50, 6, 60, 21)))
    with pytest.raises(
        ValueError,
        match=r"train.xml: object 1 \(cup\): expected a box inside .* 40 x 30",
    ):
        read(folder, "cup")


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
    found = images.read_image(tmp_path / "a.png")
    assert np.array_equal(found, np.rot90(pixels, -1))
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
    found = images.list_images(tmp_path)
    assert [path.name for path in found] == ["a.png", "b.JPG"]


def test_lists_may_begin_with_a_mark_and_images_end_in_capitals(folder):
    path = folder / "ImageSets" / "Main" / "train.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    image = folder / "JPEGImages" / "train.jpg"
    image.rename(image.with_suffix(".JPG"))
    (found,) = read(folder, "cup").lists["train"]
    assert found.path.name == "train.JPG"


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
    found = read(folder, "cup")
    names = {part: [e.name for e in own] for part, own in found.lists.items()}
    assert names == {"train": ["train"], "val": ["val", "train"], "test": ["test"]}
    assert "every second one of val is held out" in found.summary()


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
    found = read(tmp_path, "horse")
    names = {part: [e.name for e in own] for part, own in found.lists.items()}
    assert names == {
        "train": ["horse0", "horse1", "horse2", "horse5"],
        "val": ["horse3"],
        "test": ["horse4"],
    }
    for number, name in enumerate(names["train"][:3]):
        example = found.lists["train"][number]
        assert (example.name, example.size) == (name, (40, 30))
        assert example.boxes[0] == (4, 5 + number, 20, 21)
    assert "three are to train on" in found.summary()
    # what is left out takes nobody's place
    masked(tmp_path, "horse5", 0, 0, 0, 0)
    masked(tmp_path, "horse0", 0, 0, 0, 0)
    masked(tmp_path, "horse6", 4, 5, 20, 21)
    found = read(tmp_path, "horse", skip_bad=True)
    assert [e.name for e in found.lists["test"]] == ["horse6"]


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

SIZE = "<size><width>{}</width><height>{}</height></size>"


def said(path, text):
    path.write_text(path.read_text().replace("<annotation>", f"<annotation>{text}"))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_turn_with_the_image_if_the_size_says_so(orientation, folder):
    path = folder / "JPEGImages" / "train.png"
    (folder / "JPEGImages" / "train.jpg").unlink()
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[5:21, 4:20] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif)
    turned = images.read_image(path)
    rows, columns = (np.flatnonzero(turned[..., 0].any(axis)) for axis in (1, 0))
    right = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    annotation = annotate(folder, "train", ("cup", (5, 6, 20, 21)))
    said(annotation, SIZE.format(40, 30))
    example = read(folder, "cup").lists["train"][0]
    assert example.size == turned.shape[1::-1]
    if orientation > 4:
        assert example.size == (30, 40)
        assert example.boxes[0] == right
    # of the turned image, or unknown
    for size in (example.size, (0, 0)):
        annotation = annotate(folder, "train", ("cup", (5, 6, 20, 21)))
        said(annotation, SIZE.format(*size))
        assert read(folder, "cup").lists["train"][0].boxes[0] == (4, 5, 20, 21)
    # the mask of an image that lies on its side
    mask = folder / "mask.png"
    Image.fromarray(pixels[..., 0]).save(mask)
    found = images.read_mask(mask, path)
    assert (found == (turned[..., 0] if orientation > 4 else pixels[..., 0])).all()


@pytest.mark.parametrize("size", [(41, 30), (30, 40), ("x", 30), (0, 30)])
def test_an_annotation_of_another_size_is_refused(size, folder):
    path = folder / "Annotations" / "train.xml"
    said(path, SIZE.format(*size))
    expected = rf"{path}: expected the size of .*, 40 x 30 pixels, got {size[0]} x"
    with pytest.raises(ValueError, match=expected):
        read(folder, "cup")


def test_difficult_objects_are_left_out(folder):
    path = folder / "Annotations" / "train.xml"
    path.write_text(
        path.read_text().replace("</name>", "</name><difficult>1</difficult>")
    )
    with pytest.raises(ValueError, match=r"train: expected images with exactly one"):
        read(folder, "cup")
    path.write_text(path.read_text().replace("<difficult>1", "<difficult>0"))
    shutil.copy(folder / "JPEGImages" / "val.jpg", folder / "JPEGImages" / "hard.jpg")
    hard = path.with_name("hard.xml")
    hard.write_text(path.read_text().replace("<difficult>0", "<difficult>1"))
    (folder / "ImageSets" / "Main" / "train.txt").write_text("train\nhard\n")
    found = read(folder, "cup")
    assert [example.name for example in found.lists["train"]] == ["train"]
    assert found.difficult == 1
    assert "1 with one that is difficult" in found.summary()


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


def test_annotations_that_are_deep_or_large_are_named(folder):
    path = folder / "Annotations" / "train.xml"
    for content in ("<annotation>" + "<a>" * 10**5, " " * (2**24 + 1)):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"{path}: expected plain XML"):
            read(folder, "cup")


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
