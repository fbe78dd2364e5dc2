"""Figures of outputs of structures and trained models, with matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothsp.figures.style import (
    COLOURS,
    CORRECT_COLOUR,
    ERROR_COLOUR,
    FAINT,
    INK,
    PALE,
    arcs,
    colour,
    columns,
    word_centres,
)
from smoothsp.metrics import spans as read_spans
from smoothsp.schemes import PLAIN, convert, detect

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

KINDS = (
    "tags", "dependencies", "constituents", "segmentation", "alignment", "warping",
    "matching", "path", "box",
)  # fmt: skip
# Inches: width of a figure and of a letter, height of a level of arcs and of a line.
WIDTH, LETTER, LEVEL, LINE = 7.0, 0.085, 0.3, 0.55
# font sizes in points
SIZE, SMALL, SMALLEST = 10.0, 8.0, 5.5
# Longest line of words, in columns.
ROW = 78
GAP = "\N{EN DASH}"


def draw(
    output: Any,
    kind: str | None = None,
    *,
    words: Any = None,
    labels: Sequence[str] | None = None,
    image: Any = None,
    index: Any = None,
    points: Any = None,
    true: Any = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw one output on an axis of matplotlib.

    Parameters
    ----------
    output
        A :class:`~smoothsp.models.Tagged`, :class:`~smoothsp.models.Parsed` or
        :class:`~smoothsp.models.localiser.Found`, which need no ``kind``. Or one
        decoded row of a structure, a tensor or an array:

        ================  =========================================================
        ``kind``          ``output``
        ================  =========================================================
        "tags"            ``(T,)`` labels of a chain, or strings in any scheme
        "dependencies"    ``(n,)`` heads, or ``(n, 2)`` heads and labels
        "constituents"    ``(n, n)`` of a span tree
        "segmentation"    ``(H, W)`` labels of pixels, or ``(T,)`` of ``SemiMarkov``
        "alignment"       ``(N + 1, M + 1)`` moves
        "warping"         ``(N, M)``, 0 on the path
        "matching"        ``(P,)`` columns of rows, -1 for none
        "path"            ``(E,)`` 1 for arcs on the path, with ``index``
        "box"             ``(4,)`` or ``(K, 4)`` first row, first column, last row,
                          last column
        ================  =========================================================
    words
        Words of the sentence; numbers if absent. For alignments, warpings and
        matchings, a pair: the items of the first and of the second side.
    labels
        Names of the labels 0, 1, ...; constituents with an empty name are not drawn.
        For boxes, the name of each: a colour stands for a name.
    image
        ``(H, W)`` or ``(H, W, 3)``, drawn below a segmentation or boxes.
    index
        ``(E, 2)``: the nodes that each arc leaves and enters.
    points
        ``(V, 2)``: x and y of the nodes of a path; arranged in layers if absent.
    true
        True output. For dependencies and matchings, wrong arcs are dashed in another
        colour and missed arcs are grey. For boxes, true boxes are dashed.
    ax
        Axes to draw on. If absent, a new figure is created, 7 inches wide or as wide as
        the sentence needs.

    Returns
    -------
    Axes
        Call ``ax.figure.savefig(path)`` to write a file.

    Raises
    ------
    ModuleNotFoundError
        Without matplotlib.
    ValueError
        For an unknown kind, a wrong shape, or an argument that the kind requires or
        does not accept.

    Examples
    --------
    >>> from smoothsp.figures import draw
    >>> words = ["Ada", "met", "Bob"]
    >>> ax = draw([2, 0, 2], "dependencies", words=words)  # doctest: +SKIP
    >>> ax.figure.savefig("tree.png")  # doctest: +SKIP
    """
    if kind is None:
        kind, output, words, labels = _from_model_output(output, words, labels)
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    if true is not None and kind not in ("dependencies", "matching", "box"):
        raise ValueError(f"true: expected none for {kind}")
    if kind == "dependencies":
        tree = _as_tree(output, labels)
        gold = None if true is None else _as_tree(true, labels)
        return _draw_dependencies(_word_list(words, len(tree.heads)), tree, gold, ax)
    output, truth = _as_array(output), None if true is None else _as_array(true)
    if kind == "tags":
        names = [
            _label_name(labels, x)
            for x in _require_ndim(kind, output, 1)
            if _is_label(x)
        ]
        return _draw_spans(_word_list(words, len(names)), _tag_spans(names), ax)
    if kind == "constituents":
        spans = _constituent_spans(_require_ndim(kind, output, 2), labels)
        return _draw_constituents(_word_list(words, _num_words(output)), spans, ax)
    if kind == "segmentation":
        if output.ndim == 1:
            segments = _segment_spans(output, labels, words)
            return _draw_spans(_word_list(words, len(output)), segments, ax)
        return _draw_regions(_require_ndim(kind, output, 2), labels, image, ax)
    if kind == "alignment":
        return _draw_alignment(_require_ndim(kind, output, 2), _word_pair(words), ax)
    if kind == "warping":
        return _draw_warping(_require_ndim(kind, output, 2), _word_pair(words), ax)
    if kind == "matching":
        return _draw_matching(
            _require_ndim(kind, output, 1), _word_pair(words), truth, ax
        )
    if kind == "path":
        if index is None:
            raise ValueError("index: expected the ends of the arcs, (E, 2), got none")
        return _draw_path(_require_ndim(kind, output, 1), _as_array(index), points, ax)
    return _draw_boxes(output, labels, image, truth, ax)


class Tree(NamedTuple):
    """Heads of words and labels of arcs."""

    heads: list[int]
    labels: list[str]


def _from_model_output(
    output: Any, words: Any, labels: Any
) -> tuple[str, Any, Any, Any]:
    """Return kind, output, words and labels of the output of a trained model."""
    if hasattr(output, "heads"):
        return "dependencies", output, output.words, None
    if hasattr(output, "tags"):
        return "tags", output.tags, output.words, None
    if hasattr(output, "boxes"):
        boxes = np.array(output.boxes).reshape(-1, 4)
        # from (left, top, right, bottom), exclusive, to inclusive rows and columns
        rows = boxes[:, [1, 0, 3, 2]] - np.array([0, 0, 1, 1])
        return "box", rows, words, output.labels if labels is None else labels
    raise ValueError(
        f"kind: expected one of {', '.join(KINDS)}, got None for a"
        f" {type(output).__name__}"
    )


def _as_array(value: Any) -> NDArray[Any]:
    detached = value.detach().cpu() if hasattr(value, "detach") else value
    return np.asarray(detached)


def _require_ndim(kind: str, output: NDArray[Any], ndim: int) -> NDArray[Any]:
    if output.ndim != ndim:
        raise ValueError(
            f"output: expected one row of {ndim} axes for {kind}, got shape"
            f" {output.shape}. Of a batch take one row"
        )
    return output


def _is_label(label: Any) -> bool:
    """Return False for padding, which is -1."""
    return isinstance(label, str) or int(label) >= 0


def _label_name(labels: Sequence[str] | None, label: Any) -> str:
    """Return a label as text: a string unchanged, ``labels[label]`` or its number."""
    if isinstance(label, str):
        return str(label)
    if labels is None:
        return str(int(label))
    if int(label) >= len(labels):
        raise ValueError(
            f"labels: expected a name for label {int(label)}, got {len(labels)} names"
        )
    return str(labels[int(label)])


def _word_list(words: Sequence[str] | None, length: int) -> list[str]:
    if words is None:
        return [str(number) for number in range(1, length + 1)]
    if len(words) < length:
        raise ValueError(f"words: expected {length} words, got {len(words)}")
    return [str(word) for word in words[:length]]


def _word_pair(words: Any) -> tuple[Any, Any]:
    if words is None:
        return None, None
    if len(words) != 2 or isinstance(words[0], str):
        raise ValueError(
            "words: expected a pair, the items of the first side and of the second"
        )
    return words[0], words[1]


def _tag_spans(tags: list[str]) -> list[tuple[str, int, int]]:
    """Return (type, first, last) of each span, or of each word for plain labels."""
    scheme = detect([tags])
    if scheme == PLAIN:
        return [(tag, n, n) for n, tag in enumerate(tags) if tag != "O"]
    spans = read_spans(convert(tags, source=scheme, target="BIO", strict=False))
    return sorted(spans, key=lambda span: span[1])


def _as_tree(tree: Any, labels: Sequence[str] | None) -> Tree:
    if hasattr(tree, "heads"):
        return Tree(tree.heads, tree.labels)
    output = _as_array(tree)
    if output.ndim not in (1, 2) or (output.ndim == 2 and output.shape[1] != 2):
        raise ValueError(
            f"output: expected heads (n,), or heads and labels (n, 2), got shape"
            f" {output.shape}. Of a batch take one row"
        )
    table = output.reshape(len(output), -1)
    table = table[table[:, 0] >= 0]
    named = table.shape[1] == 2
    names = [_label_name(labels, row[1]) if named else "" for row in table]
    return Tree([int(row[0]) for row in table], names)


def _num_words(span_labels: NDArray[Any]) -> int:
    """Return the number of words of a span tree ``(n, n)``, -1 without a span."""
    return int(np.argwhere(span_labels >= 0).max(initial=-1)) + 1


def _constituent_spans(
    output: NDArray[Any], labels: Sequence[str] | None
) -> list[tuple[str, int, int]]:
    named_spans = [
        (_label_name(labels, output[i, j]), i, j) for i, j in np.argwhere(output >= 0)
    ]
    return [(name, int(i), int(j)) for name, i, j in named_spans if name]


def _segment_spans(
    output: NDArray[Any], labels: Sequence[str] | None, words: Any
) -> list[tuple[str, int, int]]:
    """Return (label, first, last) of segments: a label at the start, then -1."""
    starts = np.flatnonzero(output >= 0)
    size = len(output) if words is None else min(len(words), len(output))
    ends = [*(starts[1:] - 1), size - 1]
    return [
        (_label_name(labels, output[first]), int(first), int(last))
        for first, last in zip(starts, ends, strict=True)
    ]


def _get_axes(ax: "Axes | None", width: float, height: float) -> "Axes":
    """Return the axes without frame; create a figure of this size if None."""
    if ax is None:
        try:
            from matplotlib import pyplot
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'draw: needs {error.name}: pip install "smoothsp[figures]"',
                name=error.name,
            ) from error
        size = (max(width, 2.0), max(height, 1.0))
        ax = pyplot.subplots(figsize=size, layout="constrained")[1]
    ax.set_axis_off()
    return ax


def _write_text(
    ax: "Axes", x: float, y: float, text: str, size: float = SIZE, **options: Any
) -> None:
    """Write text centred at (x, y); dollar signs are literal."""
    style = {"ha": "center", "va": "center", "color": INK} | options
    ax.text(x, y, text, fontsize=size, parse_math=False, **style)


def _font_size(ax: "Axes", num_columns: float) -> float:
    """Return the font size at which a line of text fits into the axes."""
    box = ax.get_window_extent()
    inches = box.width / ax.figure.dpi
    return float(np.clip(SIZE * inches / (LETTER * num_columns), SMALLEST, SIZE))


def _draw_spans(
    words: list[str], spans: list[tuple[str, int, int]], ax: "Axes | None"
) -> "Axes":
    """Draw words in lines, with coloured and named spans."""
    from_word = {first: (kind, last) for kind, first, last in spans}
    order = sorted({kind for kind, _, _ in spans})
    slots, x, row = [], 0.0, 0
    for number, word in enumerate(words):
        named = columns(from_word[number][0]) if number in from_word else 0
        alone = number in from_word and from_word[number][1] == number
        size = max(columns(word), 0.8 * named if alone else 0) + 1.5
        if x and x + size > ROW:
            x, row = 0.0, row + 1
        slots.append((x, row, size))
        x += size
    num_columns = max((x + size for x, _, size in slots), default=1.0)
    ax = _get_axes(ax, min(WIDTH, num_columns * LETTER + 0.3), (row + 1) * LINE + 0.1)
    from matplotlib.patches import FancyBboxPatch

    size = _font_size(ax, num_columns)
    for number, word in enumerate(words):
        x, y, width = slots[number]
        _write_text(ax, x + width / 2, -y, word, size)
    for kind, first, last in spans:
        tint = colour(order.index(kind))
        # a span may continue on the next line
        for line in range(slots[first][1], slots[last][1] + 1):
            inside = [p for p in slots[first : last + 1] if p[1] == line]
            begin, end = inside[0][0] + 0.3, inside[-1][0] + inside[-1][2] - 0.3
            box = FancyBboxPatch(
                (begin, -line - 0.2), end - begin, 0.42, boxstyle="round,pad=0,"
                "rounding_size=0.15", fc=f"{tint}40", ec=tint, lw=1,
            )  # fmt: skip
            ax.add_patch(box)
            _write_text(ax, (begin + end) / 2, -line - 0.36, kind, 0.8 * size)
    ax.set(xlim=(-0.5, num_columns + 0.5), ylim=(-row - 0.55, 0.35))
    return ax


def _draw_dependencies(
    words: list[str], tree: Tree, truth: Tree | None, ax: "Axes | None"
) -> "Axes":
    """Draw arcs above the words, wrong ones dashed, and missed arcs below."""
    centres, num_columns = word_centres(words, tree.labels)
    predicted, missed = arcs(centres, tree.heads, tree.labels), []
    if truth is not None:
        pairs = zip(truth.heads, tree.heads, strict=True)
        heads = [-1 if head == other else head for head, other in pairs]
        missed = arcs(centres, heads, truth.labels)
    wrong = {arc.word for arc in missed}
    height, below = (
        max((arc.level for arc in group), default=0) for group in (predicted, missed)
    )
    ax = _get_axes(ax, max(3.0, num_columns * LETTER), (height + below + 2) * LEVEL)
    size = _font_size(ax, num_columns)
    for centre, word in zip(centres, words, strict=True):
        _write_text(ax, centre, -0.55, word, size)
    for arc in predicted:
        right, label = arc.word not in wrong, arc.label
        if right and truth is not None and truth.labels[arc.word] != label:
            label = f"{label} (true: {truth.labels[arc.word]})"
        _draw_arc(ax, arc, label, size, CORRECT_COLOUR if right else ERROR_COLOUR, 1)
    for arc in missed:
        _draw_arc(ax, arc, arc.label, size, FAINT, -1)
    floor = -1.1 - (below + 0.6 if missed else 0)
    ax.set(xlim=(-0.5, num_columns + 0.5), ylim=(floor, height + 0.6))
    return ax


def _draw_arc(
    ax: "Axes", arc: Any, label: str, size: float, tint: str, side: int
) -> None:
    """Draw an arc with an arrow at its word: above if ``side`` is 1, below if -1."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    base = 0.0 if side > 0 else -1.1
    top = base + side * arc.level
    corner = min(0.8, abs(arc.end - arc.begin) / 3) * (1 if arc.end > arc.begin else -1)
    M, L, Q = Path.MOVETO, Path.LINETO, Path.CURVE3
    if arc.head is None:
        steps = [(M, (arc.end, top)), (L, (arc.end, base))]
    else:
        near = top - side * 0.35
        steps = [
            (M, (arc.begin, base)), (L, (arc.begin, near)),
            (Q, (arc.begin, top)), (Q, (arc.begin + corner, top)),
            (L, (arc.end - corner, top)), (Q, (arc.end, top)), (Q, (arc.end, near)),
            (L, (arc.end, base)),
        ]  # fmt: skip
    codes, vertices = zip(*steps, strict=True)
    style = "--" if tint == ERROR_COLOUR else "-"
    path = Path(np.array(vertices), codes)
    ax.add_patch(PathPatch(path, fill=False, ec=tint, lw=1.2, ls=style))
    marker = "v" if side > 0 else "^"
    ax.plot(arc.end, base + side * 0.08, marker, ms=4.5, color=tint)
    if label:
        box = {"fc": "white", "ec": "none", "pad": 0.8}
        middle = (arc.begin + arc.end) / 2
        _write_text(ax, middle, top, label, 0.8 * size, color=tint, bbox=box)


def _draw_constituents(
    words: list[str], spans: list[tuple[str, int, int]], ax: "Axes | None"
) -> "Axes":
    """Draw a constituency tree: each node above its words, joined to its children."""
    edges = np.cumsum([0.0, *(columns(word) + 1.6 for word in words)])
    middle = ((edges[:-1] + edges[1:]) / 2).tolist()
    # innermost spans first, so that the children of a node are placed before it
    order = sorted(spans, key=lambda span: span[2] - span[1])
    tops = [(n, n, middle[n], 0) for n in range(len(words))]
    lines, nodes = [], []
    for name, first, last in order:
        inside = [top for top in tops if first <= top[0] and top[1] <= last]
        x = (inside[0][2] + inside[-1][2]) / 2
        y = 1 + max(top[3] for top in inside)
        lines += [((x, top[2], top[2]), (y, y - 0.7, top[3])) for top in inside]
        nodes.append((x, y, name))
        tops = [top for top in tops if top not in inside] + [(first, last, x, y)]
        tops.sort()
    height = max((y for _, y, _ in nodes), default=0)
    num_columns = float(edges[-1])
    width = max(3.0, min(num_columns * LETTER, 2 * WIDTH))
    ax = _get_axes(ax, width, (height + 1) * 1.4 * LEVEL)
    size = _font_size(ax, num_columns)
    for xs, ys in lines:
        ax.plot(xs, ys, color=FAINT, lw=1, zorder=1)
    box = {"fc": "white", "ec": "none", "pad": 1.0}
    for x, y, name in nodes:
        _write_text(ax, x, y, name, 0.9 * size, color=CORRECT_COLOUR, bbox=box)
    for x, word in zip(middle, words, strict=True):
        _write_text(ax, x, 0, word, size, bbox=box)
    ax.set(xlim=(0, num_columns), ylim=(-0.5, height + 0.5))
    return ax


def _draw_regions(
    output: NDArray[Any], labels: Sequence[str] | None, image: Any, ax: "Axes | None"
) -> "Axes":
    """Draw labels of pixels, coloured and outlined; label 0 is transparent."""
    H, W = output.shape
    ax = _get_axes(ax, WIDTH, WIDTH * H / W if W else 1.0)
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    _show_image(ax, image, (H, W))
    present = [int(label) for label in np.unique(output) if label > 0]
    layer = np.zeros((H, W, 4))
    for label in present:
        layer[output == label] = to_rgba(colour(label - 1), 0.45)
        if H > 1 and W > 1:
            inside = (output == label).astype(float)
            if inside.min() < inside.max():
                ax.contour(inside, [0.5], colors=[colour(label - 1)], linewidths=1.5)
    ax.imshow(layer, interpolation="nearest")
    handles = [
        Patch(fc=to_rgba(colour(label - 1), 0.45), ec=colour(label - 1),
              label=_label_name(labels, label))
        for label in present
    ]  # fmt: skip
    if handles:
        ax.legend(handles=handles, loc="upper right", fontsize=SMALL)
    return ax


def _show_image(ax: "Axes", image: Any, shape: tuple[int, int] | None) -> None:
    if image is None:
        return
    pixels = _as_array(image)
    if shape is not None and pixels.shape[:2] != shape:
        raise ValueError(f"image: expected {shape}, as the output, got {pixels.shape}")
    ax.imshow(pixels, cmap="gray" if pixels.ndim == 2 else None)


def _draw_alignment(
    output: NDArray[Any], words: tuple[Any, Any], ax: "Axes | None"
) -> "Axes":
    """Draw an alignment: matched items joined, others opposite a gap."""
    N, M = output.shape[0] - 1, output.shape[1] - 1
    first, second = (_word_list(w, s) for w, s in zip(words, (N, M), strict=True))
    # move 0 matches two items, 1 skips one of the first side, 2 one of the second
    i = j = 0
    pairs = []
    while (i, j) != (N, M) and output[i, j] >= 0:
        move = int(output[i, j])
        pairs.append((first[i] if move != 2 else "", second[j] if move != 1 else ""))
        i, j = i + (move != 2), j + (move != 1)
    sizes = [max(columns(a), columns(b), 1) + 1.2 for a, b in pairs]
    num_columns = float(sum(sizes)) or 1.0
    ax = _get_axes(ax, max(2.5, min(2 * WIDTH, num_columns * LETTER * 1.3)), 1.0)
    size, x = _font_size(ax, num_columns), 0.0
    for (above, below), width in zip(pairs, sizes, strict=True):
        middle = x + width / 2
        if above and below:
            ax.plot([middle] * 2, [0.28, 0.72], color=CORRECT_COLOUR, lw=1.5)
        for y, text in ((1.0, above), (0.0, below)):
            _write_text(ax, middle, y, text or GAP, size, color=INK if text else FAINT)
        x += width
    ax.set(xlim=(0, num_columns), ylim=(-0.4, 1.4))
    return ax


def _draw_warping(
    output: NDArray[Any], words: tuple[Any, Any], ax: "Axes | None"
) -> "Axes":
    """Draw the warping path, the first sequence down and the second across."""
    on_path = output >= 0
    N, M = (int(on_path.any(axis).sum()) for axis in (1, 0))
    ax = _get_axes(ax, 0.62 * WIDTH, 0.62 * WIDTH * min(2.0, max(0.4, N / max(M, 1))))
    from matplotlib.ticker import MaxNLocator

    ax.set_axis_on()
    ax.imshow(np.where(on_path[:N, :M], 1.0, 0.0), cmap="Blues", vmin=0, vmax=1.4)
    path = np.argwhere(on_path[:N, :M])
    ax.plot(path[:, 1], path[:, 0], color=INK, lw=1.5, marker=".", ms=4)
    ax.set(xlabel="second", ylabel="first")
    for names, axis, size in ((words[0], ax.yaxis, N), (words[1], ax.xaxis, M)):
        if names is not None:
            axis.set_ticks(range(size), _word_list(names, size))
        else:
            axis.set_major_locator(MaxNLocator(integer=True))
    return ax


def _draw_matching(
    output: NDArray[Any],
    words: tuple[Any, Any],
    truth: NDArray[Any] | None,
    ax: "Axes | None",
) -> "Axes":
    """Draw two lists and lines between partners; wrong dashed, missed grey."""
    rows = len(output)
    matchings = [output, *([] if truth is None else [truth])]
    max_column = max(int(matching.max(initial=-1)) for matching in matchings)
    size = max_column + 1 if words[1] is None else len(words[1])
    left, right = _word_list(words[0], rows), _word_list(words[1], size)
    ax = _get_axes(ax, 4.5, 0.28 * max(rows, size) + 0.3)
    for side, names in ((0, left), (1, right)):
        for number, name in enumerate(names):
            _write_text(
                ax, 1.06 * side - 0.03, -number, name, ha="left" if side else "right"
            )
    for row, column in enumerate(output.tolist()):
        wrong = truth is not None and truth[row] != column
        if wrong and truth is not None and truth[row] >= 0:
            ax.plot([0, 1], [-row, -int(truth[row])], color=FAINT, lw=1.2)
        if column >= 0:
            tint, style = (ERROR_COLOUR, "--") if wrong else (CORRECT_COLOUR, "-")
            ends = [-row, -column]
            ax.plot([0, 1], ends, marker="o", ms=3.5, lw=1.5, color=tint, ls=style)
    ax.set(xlim=(-0.6, 1.6), ylim=(-max(rows, size) + 0.4, 0.6))
    return ax


def _draw_path(
    output: NDArray[Any], index: NDArray[Any], points: Any, ax: "Axes | None"
) -> "Axes":
    """Draw a graph, with the arcs of the path in colour."""
    if index.shape != (len(output), 2):
        raise ValueError(f"index: expected ({len(output)}, 2), got {index.shape}")
    real = (output >= 0) & (index >= 0).all(1)
    index, used = index[real], output[real] > 0
    num_nodes = int(index.max(initial=-1)) + 1
    positions = (
        _layer_positions(index, num_nodes)
        if points is None
        else _as_array(points).astype(float)
    )
    if positions.ndim != 2 or positions.shape[1] != 2 or len(positions) < num_nodes:
        raise ValueError(f"points: expected ({num_nodes}, 2), got {positions.shape}")
    ax = _get_axes(ax, 0.75 * WIDTH, 0.5 * WIDTH)
    from matplotlib.patches import FancyArrowPatch

    for (a, b), is_used in zip(index.tolist(), used.tolist(), strict=True):
        tint, width = (CORRECT_COLOUR, 2.2) if is_used else (PALE, 1.0)
        arrow = FancyArrowPatch(
            positions[a], positions[b], arrowstyle="-|>", mutation_scale=12, shrinkA=9,
            shrinkB=9, zorder=1 + is_used, in_layout=False, color=tint, lw=width,
        )  # fmt: skip
        ax.add_patch(arrow)
    visited = set(index[used].ravel().tolist())
    for node, (x, y) in enumerate(positions[:num_nodes]):
        tint = CORRECT_COLOUR if node in visited else FAINT
        ax.plot(x, y, "o", ms=16, mfc="white", mec=tint, mew=1.5, zorder=3)
        _write_text(ax, x, y, str(node), SMALL, zorder=4)
    lowest, highest = positions.min(0), positions.max(0)
    margin = 0.12 * (highest - lowest) + 0.1
    (left, low), (right, high) = lowest - margin, highest + margin
    ax.set(xlim=(left, right), ylim=(low, high))
    return ax


def _layer_positions(index: NDArray[Any], num_nodes: int) -> NDArray[np.float64]:
    """Return positions ``(num_nodes, 2)``: layers by longest path, or a circle.

    The layer of a node is the largest number of arcs on a path to it. Graphs with
    cycles have no layers; their nodes are put on a circle.
    """
    depth = np.zeros(num_nodes, dtype=int)
    for _ in range(num_nodes):
        before = depth.copy()
        np.maximum.at(depth, index[:, 1], before[index[:, 0]] + 1)
        if (depth == before).all():
            break
    else:
        angle = 2 * np.pi * np.arange(num_nodes) / max(num_nodes, 1)
        return np.stack([np.cos(angle), np.sin(angle)], 1)
    positions = np.zeros((num_nodes, 2))
    for layer in range(depth.max(initial=0) + 1):
        members = np.flatnonzero(depth == layer)
        positions[members, 0] = layer
        # shift odd layers, so that arcs that skip a layer do not cross its nodes
        positions[members, 1] = (
            (len(members) - 1) / 2 - np.arange(len(members)) + 0.15 * (layer % 2)
        )
    return positions


def _draw_boxes(
    output: NDArray[Any],
    labels: Sequence[str] | None,
    image: Any,
    truth: NDArray[Any] | None,
    ax: "Axes | None",
) -> "Axes":
    """Draw named boxes on an image, the first one thick; true boxes dashed."""
    if output.ndim not in (1, 2) or output.shape[-1] != 4:
        raise ValueError(
            f"output: expected boxes (4,) or (K, 4), got shape {output.shape}"
        )
    shape = _as_array(image).shape if image is not None else (3, 4)
    ax = _get_axes(ax, WIDTH, WIDTH * shape[0] / shape[1])
    from matplotlib.patches import Rectangle

    _show_image(ax, image, None)
    boxes = output.reshape(-1, 4).tolist()
    names = [""] * len(boxes) if labels is None else list(labels)
    if len(names) != len(boxes):
        raise ValueError(
            f"labels: expected the names of {len(boxes)} boxes, got {len(names)}"
        )
    tints = {name: colour(1 + n) for n, name in enumerate(dict.fromkeys(sorted(names)))}
    drawn = [(box, tints[name], "-") for box, name in zip(boxes, names, strict=True)]
    if truth is not None:
        true = truth.reshape(-1, 4).tolist()
        drawn += [(box, COLOURS[4], "--") for box in true]
    for number, ((top, left, bottom, right), tint, style) in enumerate(drawn):
        corner = (left - 0.5, top - 0.5)
        width = 2.5 if number in (0, len(boxes)) else 1.2
        size = (right - left + 1, bottom - top + 1)
        ax.add_patch(Rectangle(corner, *size, fill=False, ec=tint, lw=width, ls=style))
    for (top, left, *_), name in zip(boxes, names, strict=True):
        if len(tints) > 1:
            box = {"facecolor": tints[name], "edgecolor": "none", "pad": 1}
            placement: dict[str, Any] = {"ha": "left", "va": "top", "bbox": box}
            _write_text(
                ax, left - 0.5, top - 0.5, name, SMALLEST, color="w", **placement
            )
    if image is None:
        ax.autoscale_view()
        ax.set_aspect("equal")
        if not ax.yaxis_inverted():
            ax.invert_yaxis()
    return ax
