"""Examples of any form, and what is said of bad ones."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from nltk import Tree
from PIL import Image

from smoothsp.data import (
    AnnotatedImage,
    ConstituencyTree,
    DependencyTree,
    TaggedSentence,
    as_dependencies,
    as_images,
    as_masks,
    as_tagged,
    as_trees,
    dependencies,
)

WORDS, TAGS = ["Orla", "left"], ["B-PER", "O"]
HEADS, LABELS = [2, 0], ["nsubj", "root"]
SPANS = [("S", 0, 1), ("NP", 0, 0)]


class Rows(list):
    """Rows as Hugging Face datasets gives them, with the names of numbers."""

    def __init__(self, rows, **features):
        super().__init__(rows)
        self.features = features


def named(*names):
    return SimpleNamespace(feature=SimpleNamespace(names=list(names)))


NUMBERS = Rows([{"tokens": WORDS, "ner_tags": [1, 0]}], ner_tags=named("O", "B-PER"))


@pytest.mark.parametrize(
    "data",
    [
        [TaggedSentence(WORDS, TAGS)],
        [(WORDS, TAGS)],
        [[WORDS, TAGS]],
        ((WORDS, TAGS) for _ in range(1)),
        [{"tokens": WORDS, "ner_tags": TAGS, "pos_tags": [1, 2]}],
        [{"words": tuple(WORDS), "tags": TAGS}],
        [{"tokens": np.array(WORDS, object), "labels": np.array(TAGS, object)}],
        NUMBERS,
    ],
)
def test_sentences_come_in_many_forms(data):
    assert as_tagged(data) == [TaggedSentence(WORDS, TAGS)]


def test_tags_may_be_unknown_and_of_another_column(tmp_path):
    given = [(WORDS, [None, "O"], 3), (WORDS, None)]
    first, second = as_tagged(given)
    assert (first.tags, first.document, second.tags) == ([None, "O"], 3, None)
    rows = [{"tokens": WORDS, "ner_tags": TAGS, "pos": ["N", "V"]}]
    assert as_tagged(rows, column="pos")[0].tags == ["N", "V"]
    (tmp_path / "a.txt").write_text("Orla N B-PER\nleft V O\n")
    for path in (tmp_path / "a.txt", str(tmp_path / "a.txt")):
        assert as_tagged(path)[0].tags == TAGS
        assert as_tagged(path, column="2")[0].tags == ["N", "V"]


def test_tags_of_dictionaries_may_be_unknown():
    rows = [{"tokens": WORDS, "tags": None}, {"tokens": WORDS, "tags": [None, "O"]}]
    assert [one.tags for one in as_tagged(rows)] == [None, [None, "O"]]


@pytest.mark.parametrize(
    "reader", [as_tagged, as_dependencies, as_trees, as_images, as_masks]
)
def test_messages_name_the_examples(reader):
    with pytest.raises(ValueError, match=r"^dev: expected at least one \w+, got none"):
        reader([], name="dev")
    with pytest.raises(TypeError, match=r"^dev\[0\]: expected a"):
        reader([3], name="dev")
    with pytest.raises(TypeError, match=r"^dev: expected a "):
        reader(3, name="dev")


@pytest.mark.parametrize(
    ("reader", "example"),
    [
        (as_tagged, (["a\ud800"], ["O"])),
        (as_tagged, (["a"], ["B-\ud800"])),
        (as_dependencies, (["\udc00"], [0], ["root"])),
        (as_dependencies, (["a"], [0], ["\udc00"])),
        (as_trees, (["\udc00"], [])),
        (as_trees, (["a"], [("\udc00", 0, 0)])),
        (as_trees, "(S (N \udc00))"),
    ],
)
def test_half_of_a_surrogate_pair_is_no_text(reader, example):
    with pytest.raises(
        ValueError, match=r"^data\[0\].*: expected .*'?\\ud[8c]00"
    ) as caught:
        reader([example])
    str(caught.value).encode()


TREE = dependencies.make_tree(WORDS, HEADS, LABELS)


@pytest.mark.parametrize(
    "data",
    [
        [TREE],
        [DependencyTree(WORDS, HEADS, LABELS)],
        [(WORDS, HEADS, LABELS)],
        [{"tokens": WORDS, "head": ["2", "0"], "deprel": LABELS}],
        [{"words": WORDS, "heads": HEADS, "labels": ["nsubj", "ROOT"]}],
        [
            {
                "tokens": ["Orla", "leftnow", "left"],
                "head": ["2", "None", "0"],
                "deprel": ["nsubj", "_", "root"],
            }
        ],
        Rows(
            [{"tokens": WORDS, "head": HEADS, "deprel": [1, 0]}],
            deprel=named("root", "nsubj"),
        ),
    ],
)
def test_dependencies_come_in_many_forms(data, tmp_path):
    (found,) = as_dependencies(data)
    assert (found.words, found.heads, found.labels) == (WORDS, HEADS, LABELS)
    text = dependencies.to_conllu([found])
    (tmp_path / "a.conllu").write_text(text)
    assert as_dependencies(tmp_path / "a.conllu") == [TREE]


@pytest.mark.parametrize(
    "data",
    [
        [ConstituencyTree(WORDS, SPANS)],
        [(WORDS, SPANS)],
        [(WORDS, SPANS[::-1])],
        [{"tokens": WORDS, "spans": [list(span) for span in SPANS]}],
        "(S (NP (XX Orla)) (XX left))",
        ["(S (NP (XX Orla)) (XX left))"],
        [Tree.fromstring("(S (NP (XX Orla)) (XX left))")],
    ],
)
def test_trees_come_in_many_forms(data, tmp_path):
    assert as_trees(data) == [ConstituencyTree(WORDS, SPANS)]


def test_trees_have_a_top_and_chains(tmp_path):
    (tree,) = as_trees([(list("abc"), [("X", 0, 1), ("Y", 0, 1), ("Z", 1, 1)])])
    assert tree.spans == [("TOP", 0, 2), ("X+Y", 0, 1), ("Z", 1, 1)]
    assert tree.tags == ["XX"] * 3
    (tmp_path / "a.mrg").write_text("(S (NP (N a)))")
    assert as_trees(tmp_path / "a.mrg")[0].spans == [("S+NP", 0, 0)]


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (40, 30)).save(path)
    return path


def test_images_come_in_many_forms(image):
    box, small = (4.0, 5.0, 20.0, 21.0), (0.0, 0.0, 2.0, 3.0)
    right = AnnotatedImage(image, (box,), ("cup",), (("pot", small),), (40, 30))
    plain = AnnotatedImage(image, (box,), ("cup",), (), (40, 30))
    objects = {"bbox": [[4, 5, 16, 16]], "category": ["cup"]}
    opened = SimpleNamespace(filename=str(image))
    for given, expected in [
        (right, right),
        (AnnotatedImage(image, (box,), ("cup",)), plain),
        ((str(image), [box], ["cup"]), plain),
        ((image, [list(box)], ["cup"], [("pot", small)]), right),
        ({"path": image, "boxes": np.array([box]), "labels": ["cup"]}, plain),
        ({"image": {"path": str(image), "bytes": b""}, "objects": objects}, plain),
        ({"image": opened, "objects": objects}, plain),
    ]:
        assert as_images([given]) == [expected]
    rows = Rows(
        [{"image": opened, "objects": objects | {"category": [1]}}],
        objects={"category": named("pot", "cup")},
    )
    assert as_images(rows) == [plain]
    rows.features = {"objects": SimpleNamespace(feature=rows.features["objects"])}
    assert as_images(rows) == [plain]
    assert as_images([(image, [], [])])[0].labels == ()
    # all of a part that goes beyond the image is cut off
    assert as_images([(image, [(-4, -5, 99, 99)], ["cup"])])[0].boxes == (
        (0, 0, 40, 30),
    )


@pytest.mark.parametrize(
    ("reader", "data", "message"),
    [
        (as_tagged, [], "data: expected at least one example, got none"),
        (
            as_tagged,
            [(["a"], ["O", "O"])],
            r"data\[0\], tags: expected as many as word",
        ),
        (
            as_tagged,
            [(["a"], ["O"]), (["a", ""], ["O", "O"])],
            r"data\[1\], words: exp",
        ),
        (as_tagged, [([], [])], r"data\[0\], words: expected at least one word"),
        (as_tagged, [("ab", ["O", "O"])], r"data\[0\], words: expected a list, got ab"),
        (as_tagged, [(["a"], [""])], r"data\[0\], tags: expected strings, got ''"),
        (as_tagged, [(["a"], ["O"], "x")], r"data\[0\], document: expected a number"),
        (as_tagged, [{"tokens": ["a"]}], r"data\[0\], tags: expected the key of the t"),
        (as_tagged, [{"text": "a"}], r"data\[0\]: expected words or tokens or form, g"),
        (
            as_tagged,
            [{"tokens": ["a"], "ner_tags": [0]}],
            r"data\[0\], ner_tags: expected strings, or numbers that data.feat",
        ),
        (
            as_tagged,
            Rows([{"tokens": ["a"], "ner_tags": [2]}], ner_tags=named("O", "X")),
            r"data\[0\], ner_tags: expected numbers from 0 to 1, got 2",
        ),
        (
            as_dependencies,
            [(["a"], [1], ["root"])],
            r"data\[0\], word 1: expected heads",
        ),
        (
            as_dependencies,
            [(["a"], [0, 1], ["x"])],
            r"data\[0\], heads: expected as man",
        ),
        (
            as_dependencies,
            [(["a"], ["x"], ["x"])],
            r"data\[0\], heads: expected number",
        ),
        (
            as_dependencies,
            [DependencyTree(["a"])],
            r"data\[0\], labels: expected as man",
        ),
        (
            as_dependencies,
            [(["a", "b"], [0, 1], ["root", "root"])],
            r"data\[0\], word 2: expected a label other than 'root'",
        ),
        (
            as_trees,
            [(["a"], [("X", 0, 1)])],
            r"data\[0\], spans: expected a label and t",
        ),
        (
            as_trees,
            [(["a"], [("X", 0)])],
            r"data\[0\], spans: expected a label and two",
        ),
        (
            as_trees,
            [(list("abc"), [("X", 0, 1), ("Y", 1, 2)])],
            r"data\[0\], spans: expected spans of which none crosses another, got"
            r" \('Y', 1, 2\) with \('X', 0, 1\)",
        ),
        (
            as_trees,
            [(list("abcd"), [("X", 1, 3), ("Y", 0, 0), ("Z", 0, 2)])],
            r"data\[0\], spans: expected spans of which none crosses another",
        ),
        (as_trees, ["(S (NN a)", "(S"], r"data\[0\], line 1: expected a \) to this"),
    ],
)
def test_what_is_wrong_with_an_example_is_named(reader, data, message):
    with pytest.raises(ValueError, match=message) as caught:
        reader(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", [as_tagged, as_dependencies, as_trees, as_images])
def test_values_of_other_types_are_refused(reader):
    with pytest.raises(
        TypeError, match=r"got a dictionary of train, test\. Give one par"
    ):
        reader({"train": [], "test": []})
    with pytest.raises(TypeError, match="data: expected a path, examples or rows, got"):
        reader(3)
    with pytest.raises(
        TypeError, match=r"data\[0\]: expected a \w+, a tuple of .*got in"
    ):
        reader([3])


@pytest.mark.parametrize(
    ("boxes", "labels", "message"),
    [
        (
            [(1, 2, 3)],
            ["a"],
            r"data\[0\]: object 1 \(a\): expected a box of left, top, r",
        ),
        (
            [(1, 2, 3, np.inf)],
            ["a"],
            r"data\[0\]: object 1 \(a\): expected a box of lef",
        ),
        ([(True, 2, 3, 4)], ["a"], r"data\[0\]: object 1 \(a\): expected a box of lef"),
        ([(9, 2, 3, 4)], ["a"], r"data\[0\]: object 1 \(a\): .* got an inverted one"),
        ([(50, 2, 60, 4)], ["a"], r"data\[0\]: object 1 \(a\): expected a box inside"),
        ([(1, 2, 3, 4)], [], r"data\[0\], labels: expected as many as boxes, 1, got 0"),
        ([(1, 2, 3, 4)], [None], r"data\[0\], labels: expected strings, got None"),
        (3, [], r"data\[0\], boxes: expected a list, got 3"),
    ],
)
def test_boxes_that_are_wrong_are_named(boxes, labels, message, image):
    with pytest.raises(ValueError, match=message) as caught:
        as_images([(image, boxes, labels)])
    # an option that as_images lacks
    assert "skip_bad" not in str(caught.value)


def test_difficult_objects_that_are_wrong_are_named(image):
    with pytest.raises(ValueError, match=r"data\[0\], difficult: expected pairs of la"):
        as_images([(image, [], [], [3])])


def test_images_that_are_not_there_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"^data\[0\]: none.png: expected an image, f"):
        as_images([(Path("none.png"), [], [])])
    picture = Image.new("RGB", (4, 4))
    with pytest.raises(
        ValueError, match=r"data\[0\], image: .* got Image. Save it fir"
    ):
        as_images([{"image": picture, "boxes": [], "labels": []}])
