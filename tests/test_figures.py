"""What figures of outputs and notebooks show: artists and texts, no pixels."""

import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from smoothsp.figures import draw
from smoothsp.models import Parsed, Span, Tagged
from smoothsp.oracles import Alignment, Lattice, Matching, SpanTree, Warping

matplotlib = pytest.importorskip("matplotlib")
WORDS = ["Ada", "Holm", "met", "$5$", "<Bob>"]
HEADS, LABELS = [2, 3, 0, 3, 3], ["flat", "nsubj", "root", "obj", "obl"]
PARSED = Parsed(WORDS, HEADS, LABELS, 0.0, " ".join(WORDS))


@pytest.fixture(autouse=True)
def closed():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def texts(ax):
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.texts]


def colours(artists):
    return [matplotlib.colors.to_hex(artist.get_edgecolor()) for artist in artists]


# --- what is drawn ---


def test_tags_are_named_boxes_around_their_words():
    tags = ["B-PER", "I-PER", "O", "B-SUM", "B-PER"]
    ax = draw(tags, "tags", words=WORDS)
    assert texts(ax) == [*WORDS, "PER", "SUM", "PER"]
    assert not any(text.get_parse_math() for text in ax.texts)
    boxes = [(box.get_x(), box.get_width()) for box in ax.patches]
    places = dict(
        zip(WORDS, (text.get_position()[0] for text in ax.texts), strict=False)
    )
    inside = [[w for w in WORDS if x < places[w] < x + size] for x, size in boxes]
    assert inside == [["Ada", "Holm"], ["$5$"], ["<Bob>"]]
    first, second, third = colours(ax.patches)
    assert first == third != second
    # numbers of labels, and plain ones
    numbered = draw(torch.tensor([0, 1, 0, -1]), "tags", labels=["DET", "NOUN"])
    assert texts(numbered) == ["1", "2", "3", "DET", "NOUN", "DET"]


def test_long_sentences_are_in_lines_and_spans_go_on():
    words = ["word"] * 40
    ax = draw(["B-X", *["I-X"] * 39], "tags", words=words)
    lines = {text.get_position()[1] for text in ax.texts if text.get_text() == "word"}
    assert len(lines) == len(ax.patches) == texts(ax).count("X") == 3


@pytest.mark.parametrize("form", ["parsed", "heads", "pairs"])
def test_a_tree_is_arcs_from_heads_to_words(form):
    names = sorted(set(LABELS))
    pairs = [[h, names.index(x)] for h, x in zip(HEADS, LABELS, strict=True)]
    given = {
        "parsed": (PARSED,),
        "heads": (torch.tensor([*HEADS, -1]), "dependencies"),
        "pairs": (torch.tensor(pairs), "dependencies"),
    }[form]
    options = {} if form == "parsed" else {"words": WORDS}
    ax = draw(*given, labels=names, **options)
    found = texts(ax)
    assert found[:5] == WORDS
    assert found[5:] == ([] if form == "heads" else LABELS)
    place = [text.get_position()[0] for text in ax.texts[:5]]
    for head, end, arc in zip(HEADS, place, ax.patches, strict=True):
        corners = arc.get_path().vertices
        assert corners[-1, 0] == end
        begin = end if head == 0 else place[head - 1]
        assert abs(corners[0, 0] - begin) <= 0.5
    # an arc over others is above them
    tops = [arc.get_path().vertices[:, 1].max() for arc in ax.patches]
    assert tops[0] == tops[1] == tops[3] < tops[4] < tops[2]


def test_wrong_arcs_are_dashed_and_true_ones_below():
    wrong = Parsed(WORDS, [3, 3, 0, 3, 4], [*LABELS[:3], "iobj", "nmod"], 0.0)
    ax = draw(wrong, true=PARSED)
    assert texts(ax)[5:] == [*LABELS[:3], "iobj (true: obj)", "nmod", "flat", "obl"]
    styles = [arc.get_linestyle() for arc in ax.patches]
    assert styles == ["--", "-", "-", "-", "--", "-", "-"]
    below = [arc.get_path().vertices[:, 1].min() < -1.2 for arc in ax.patches]
    assert below == [False] * 5 + [True] * 2
    assert len(set(colours(ax.patches))) == 3


def test_constituents_stand_over_their_words():
    y = torch.full((3, 3), -1)
    y[0, 2], y[1, 2], y[0, 0], y[1, 1], y[2, 2] = 2, 1, 1, 0, 0
    names = ["", "NP", "S"]
    ax = draw(y, "constituents", words=WORDS[:3], labels=names)
    assert sorted(texts(ax)) == sorted([*WORDS[:3], "NP", "NP", "S"])
    at = {t.get_text(): t.get_position() for t in ax.texts}
    assert at["S"][1] == 2 > at["NP"][1] == 1 > at["Ada"][1] == 0
    # S over two phrases, one of one word and one of two
    assert len(ax.lines) == 5
    any_tree = SpanTree(torch.zeros(1, 4, 4)).decode()[1][0]
    assert len(texts(draw(any_tree, "constituents"))) == 11
    # words need no spans of their own
    y[[0, 1, 2], [0, 1, 2]] = -1
    assert sorted(texts(draw(y, "constituents"))) == ["1", "1", "2", "2", "3"]


def test_regions_are_coloured_and_segments_named():
    mask = np.zeros((6, 8), dtype=int)
    mask[1:3, 1:4], mask[4:, 5:] = 1, 2
    ax = draw(mask, "segmentation", image=np.ones((6, 8)), labels=["", "cat", "dog"])
    shown = ax.images[-1].get_array()
    assert ((shown[..., 3] > 0) == (mask > 0)).all()
    assert not np.allclose(shown[1, 1], shown[5, 6])
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["cat", "dog"]
    with pytest.raises(ValueError, match=r"image: expected \(6, 8\), as the output"):
        draw(mask, "segmentation", image=np.ones((5, 8)))
    # of a chain of segments
    starts = torch.tensor([1, -1, 0, -1, -1])
    ax = draw(starts, "segmentation", words=WORDS, labels=["NP", "VP"])
    assert texts(ax) == [*WORDS, "VP", "NP"]
    assert len(ax.patches) == 2


def test_an_alignment_joins_what_is_matched():
    scores = torch.tensor([[[1.0, -9, -9], [-9, -9, 1]]])
    y = Alignment(scores, torch.tensor(-0.1)).decode()[1][0]
    ax = draw(y, "alignment", words=(["A", "B"], ["A", "x", "B"]))
    upper = [t.get_text() for t in ax.texts if t.get_position()[1] == 1]
    lower = [t.get_text() for t in ax.texts if t.get_position()[1] == 0]
    assert (upper, lower) == (["A", "\N{EN DASH}", "B"], ["A", "x", "B"])
    assert len(ax.lines) == 2
    with pytest.raises(ValueError, match="words: expected a pair"):
        draw(y, "alignment", words="AB")


def test_a_warping_is_a_path_of_pairs():
    y = Warping(torch.tensor([[[1.0, 0, 0], [0, 1, 1]]])).decode()[1][0]
    ax = draw(y, "warping", words=(["a", "b"], ["x", "y", "z"]))
    assert ax.lines[0].get_xydata().tolist() == [[0, 0], [1, 1], [2, 1]]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["x", "y", "z"]


def test_partners_are_joined():
    scores = torch.tensor([[[3.0, 0, 0, 0], [0, 0, 2, 0], [-1, -1, -1, 0]]])
    y = Matching(scores, partial=True).decode()[1][0]
    assert y.tolist() == [0, 2, -1]
    ax = draw(y, "matching", words=(["a", "b", "c"], ["x", "y", "z"]))
    assert texts(ax) == ["a", "b", "c", "x", "y", "z"]
    assert [list(line.get_ydata()) for line in ax.lines] == [[0, 0], [-1, -2]]
    ax = draw(y, "matching", true=[0, 1, -1])
    styles = [line.get_linestyle() for line in ax.lines]
    assert styles == ["-", "-", "--"]
    assert list(ax.lines[1].get_ydata()) == [-1, -1]


@pytest.mark.parametrize("placed", [False, True])
def test_arcs_of_a_path_are_in_colour(placed):
    index = torch.tensor([[0, 1], [0, 2], [1, 3], [2, 3]])
    y = Lattice(torch.tensor([[0.0, 1, 0, 1]]), index).decode()[1][0]
    points = [[0, 0], [1, 1], [1, -1], [2, 0]] if placed else None
    ax = draw(y, "path", index=index, points=points)
    assert texts(ax) == ["0", "1", "2", "3"]
    assert y.tolist() == [0, 1, 0, 1]
    off, on, *rest = colours(ax.patches)
    assert rest == [off, on] and on != off
    at = [text.get_position() for text in ax.texts]
    assert at[0][0] < at[1][0] == at[2][0] < at[3][0]
    cycle = torch.tensor([[0, 1], [1, 2], [2, 0]])
    assert len(texts(draw(torch.tensor([1, 1, 0]), "path", index=cycle))) == 3


def test_boxes_hold_their_last_row_and_column():
    image = np.zeros((10, 12, 3))
    ax = draw(torch.tensor([2, 3, 5, 7]), "box", image=image, true=[1, 3, 5, 7])
    first, second = ax.patches
    assert (first.get_xy(), first.get_width(), first.get_height()) == ((2.5, 1.5), 5, 4)
    assert second.get_linestyle() == "--" and second.get_height() == 5

    class Found:
        boxes = ((3.0, 2.0, 8.0, 6.0), (0.0, 0.0, 2.0, 2.0))
        labels = ("horse", "horse")

    best, other = draw(Found(), image=image).patches
    assert best.get_bbox().bounds == first.get_bbox().bounds
    assert best.get_linewidth() > other.get_linewidth()


def test_an_axis_of_ones_own_is_used():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert draw(PARSED, ax=ax) is ax


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ([0], {"kind": "tree"}, "kind: expected one of tags, dependencies, .* got 'tr"),
        ([0], {}, "kind: expected one of .*, got None for a list"),
        (
            [[0]],
            {"kind": "tags"},
            r"expected one row of 1 axes for tags, got .*\(1, 1\)",
        ),
        ([[1, 2, 3]], {"kind": "dependencies"}, r"expected heads \(n,\).*got shape"),
        ([0, 0], {"kind": "tags", "words": ["a"]}, "words: expected 2 words, got 1"),
        ([0, 3], {"kind": "tags", "labels": ["a"]}, "labels: expected a name for lab"),
        ([1, 0], {"kind": "path"}, "index: expected the ends of the arcs"),
        ([1], {"kind": "path", "index": [1, 2]}, r"index: expected \(1, 2\), got \(2,"),
        ([1, 2], {"kind": "box"}, r"expected boxes \(4,\) or \(K, 4\), got"),
        ([0], {"kind": "tags", "true": [1]}, "true: expected none for tags"),
    ],
)
def test_wrong_arguments_are_named(output, options, message):
    with pytest.raises(ValueError, match=message):
        draw(output, **options)


def test_without_matplotlib_its_installation_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = 'draw: needs matplotlib: pip install "smoothsp[figures]"'
    with pytest.raises(ImportError, match=re.escape(message)):
        draw([0], "tags")


# --- notebooks ---


def test_notebooks_show_tagged_text():
    text = "Ada <Holm>  & 5 "
    spans = [Span("PER", 0, 1, "Ada <Holm>", 0, 10), Span("<b>", 3, 3, "5", 14, 15)]
    shown = Tagged(["Ada", "<Holm>", "&", "5"], [], spans, 0.0, text=text)._repr_html_()
    tree = ElementTree.fromstring(shown)
    marks = tree.findall("mark")
    assert [mark.text for mark in marks] == ["Ada <Holm>", "5"]
    assert [mark.find("span").text for mark in marks] == ["PER", "<b>"]
    assert [mark.tail for mark in marks] == ["  & ", " "]
    tints = [re.match("background:(#.{6})", mark.get("style"))[1] for mark in marks]
    assert tints[0] != tints[1]


def test_notebooks_show_trees():
    tree = ElementTree.fromstring(PARSED._repr_html_())
    inside = "{http://www.w3.org/2000/svg}"
    written = [text.text for text in tree.iter(f"{inside}text")]
    assert written == [*LABELS, *WORDS]
    assert len(list(tree.iter(f"{inside}path"))) == 5
    at = {
        text.text: float(text.get("x"))
        for text in tree.iter(f"{inside}text")
        if text.text in WORDS
    }
    assert list(at) == WORDS and list(at.values()) == sorted(at.values())
    ends = [
        float(tip.get("points").split()[-1].split(",")[0])
        for tip in tree.iter(f"{inside}polygon")
    ]
    assert ends == list(at.values())
    assert Parsed([], [], [], 0.0)._repr_html_().startswith("<div")
