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
# Inches of a figure, of a letter, of a level of arcs and of a line of text.
WIDTH, LETTER, LEVEL, LINE = 7.0, 0.085, 0.3, 0.55
SIZE, SMALL, SMALLEST = 10.0, 8.0, 5.5
# Columns of a line of words.
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
        kind, output, words, labels = _of_model(output, words, labels)
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    if true is not None and kind not in ("dependencies", "matching", "box"):
        raise ValueError(f"true: expected none for {kind}")
    if kind == "dependencies":
        tree = _tree(output, labels)
        gold = None if true is None else _tree(true, labels)
        return _draw_dependencies(_words(words, len(tree.heads)), tree, gold, ax)
    output, truth = _array(output), None if true is None else _array(true)
    if kind == "tags":
        names = [_name(labels, x) for x in _axes(kind, output, 1) if _real(x)]
        return _draw_spans(_words(words, len(names)), _spans_of(names), ax)
    if kind == "constituents":
        spans = _constituents(_axes(kind, output, 2), labels)
        return _draw_constituents(_words(words, _size(output)), spans, ax)
    if kind == "segmentation":
        if output.ndim == 1:
            segments = _segments(output, labels, words)
            return _draw_spans(_words(words, len(output)), segments, ax)
        return _draw_regions(_axes(kind, output, 2), labels, image, ax)
    if kind == "alignment":
        return _draw_alignment(_axes(kind, output, 2), _pair(words), ax)
    if kind == "warping":
        return _draw_warping(_axes(kind, output, 2), _pair(words), ax)
    if kind == "matching":
        return _draw_matching(_axes(kind, output, 1), _pair(words), truth, ax)
    if kind == "path":
        if index is None:
            raise ValueError("index: expected the ends of the arcs, (E, 2), got none")
        return _draw_path(_axes(kind, output, 1), _array(index), points, ax)
    return _draw_boxes(output, labels, image, truth, ax)


class Tree(NamedTuple):
    """Heads of words and labels of arcs."""

    heads: list[int]
    labels: list[str]


def _of_model(output: Any, words: Any, labels: Any) -> tuple[str, Any, Any, Any]:
    """Kind, output, words and labels of what a trained model returned."""
    if hasattr(output, "heads"):
        return "dependencies", output, output.words, None
    if hasattr(output, "tags"):
        return "tags", output.tags, output.words, None
    if hasattr(output, "boxes"):
        found = np.array(output.boxes).reshape(-1, 4)
        # left, top, right, bottom, the last two the first outside
        rows = found[:, [1, 0, 3, 2]] - np.array([0, 0, 1, 1])
        return "box", rows, words, output.labels if labels is None else labels
    raise ValueError(
        f"kind: expected one of {', '.join(KINDS)}, got None for a"
        f" {type(output).__name__}"
    )


# --- outputs as plain lists ---


def _array(value: Any) -> NDArray[Any]:
    detached = value.detach().cpu() if hasattr(value, "detach") else value
    return np.asarray(detached)


def _axes(kind: str, output: NDArray[Any], count: int) -> NDArray[Any]:
    if output.ndim != count:
        raise ValueError(
            f"output: expected one row of {count} axes for {kind}, got shape"
            f" {output.shape}. Of a batch take one row"
        )
    return output


def _real(label: Any) -> bool:
    return isinstance(label, str) or int(label) >= 0


def _name(labels: Sequence[str] | None, label: Any) -> str:
    """A label's name, from the names of all numbers."""
    if isinstance(label, str):
        return str(label)
    if labels is None:
        return str(int(label))
    if int(label) >= len(labels):
        raise ValueError(
            f"labels: expected a name for label {int(label)}, got {len(labels)} names"
        )
    return str(labels[int(label)])


def _words(words: Sequence[str] | None, size: int) -> list[str]:
    if words is None:
        return [str(number) for number in range(1, size + 1)]
    if len(words) < size:
        raise ValueError(f"words: expected {size} words, got {len(words)}")
    return [str(word) for word in words[:size]]


def _pair(words: Any) -> tuple[Any, Any]:
    if words is None:
        return None, None
    if len(words) != 2 or isinstance(words[0], str):
        raise ValueError(
            "words: expected a pair, the items of the first side and of the second"
        )
    return words[0], words[1]


def _spans_of(tags: list[str]) -> list[tuple[str, int, int]]:
    """Type, first and last word of each span; of plain labels, of each word."""
    scheme = detect([tags])
    if scheme == PLAIN:
        return [(tag, n, n) for n, tag in enumerate(tags) if tag != "O"]
    found = read_spans(convert(tags, source=scheme, target="BIO", strict=False))
    return sorted(found, key=lambda span: span[1])


def _tree(given: Any, labels: Sequence[str] | None) -> Tree:
    if hasattr(given, "heads"):
        return Tree(given.heads, given.labels)
    output = _array(given)
    if output.ndim not in (1, 2) or (output.ndim == 2 and output.shape[1] != 2):
        raise ValueError(
            f"output: expected heads (n,), or heads and labels (n, 2), got shape"
            f" {output.shape}. Of a batch take one row"
        )
    table = output.reshape(len(output), -1)
    table = table[table[:, 0] >= 0]
    named = table.shape[1] == 2
    names = [_name(labels, row[1]) if named else "" for row in table]
    return Tree([int(row[0]) for row in table], names)


def _size(output: NDArray[Any]) -> int:
    """Words of a tree: up to the last of its spans."""
    return int(np.argwhere(output >= 0).max(initial=-1)) + 1


def _constituents(
    output: NDArray[Any], labels: Sequence[str] | None
) -> list[tuple[str, int, int]]:
    found = [(_name(labels, output[i, j]), i, j) for i, j in np.argwhere(output >= 0)]
    return [(name, int(i), int(j)) for name, i, j in found if name]


def _segments(
    output: NDArray[Any], labels: Sequence[str] | None, words: Any
) -> list[tuple[str, int, int]]:
    """A state stands where a segment starts; it lasts until the next one."""
    starts = np.flatnonzero(output >= 0)
    size = len(output) if words is None else min(len(words), len(output))
    ends = [*(starts[1:] - 1), size - 1]
    return [
        (_name(labels, output[first]), int(first), int(last))
        for first, last in zip(starts, ends, strict=True)
    ]


# --- pictures ---


def _on(ax: "Axes | None", width: float, height: float) -> "Axes":
    """The axis to draw on, without frame; if there is none, one of so many inches."""
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


def _write(
    ax: "Axes", x: float, y: float, text: str, size: float = SIZE, **options: Any
) -> None:
    """Text in the middle of a place; a dollar sign is one."""
    style = {"ha": "center", "va": "center", "color": INK} | options
    ax.text(x, y, text, fontsize=size, parse_math=False, **style)


def _letters(ax: "Axes", wide: float) -> float:
    """The size of letters with which so many columns fit into the axis."""
    box = ax.get_window_extent()
    inches = box.width / ax.figure.dpi
    return float(np.clip(SIZE * inches / (LETTER * wide), SMALLEST, SIZE))


def _draw_spans(
    words: list[str], spans: list[tuple[str, int, int]], ax: "Axes | None"
) -> "Axes":
    """Words in lines, with coloured and named spans."""
    from_word = {first: (kind, last) for kind, first, last in spans}
    order = sorted({kind for kind, _, _ in spans})
    places, x, row = [], 0.0, 0
    for number, word in enumerate(words):
        named = columns(from_word[number][0]) if number in from_word else 0
        alone = number in from_word and from_word[number][1] == number
        size = max(columns(word), 0.8 * named if alone else 0) + 1.5
        if x and x + size > ROW:
            x, row = 0.0, row + 1
        places.append((x, row, size))
        x += size
    wide = max((x + size for x, _, size in places), default=1.0)
    ax = _on(ax, min(WIDTH, wide * LETTER + 0.3), (row + 1) * LINE + 0.1)
    from matplotlib.patches import FancyBboxPatch

    size = _letters(ax, wide)
    for number, word in enumerate(words):
        x, y, own = places[number]
        _write(ax, x + own / 2, -y, word, size)
    for kind, first, last in spans:
        tint = colour(order.index(kind))
        # a span may go on in the next line
        for line in range(places[first][1], places[last][1] + 1):
            inside = [p for p in places[first : last + 1] if p[1] == line]
            begin, end = inside[0][0] + 0.3, inside[-1][0] + inside[-1][2] - 0.3
            box = FancyBboxPatch(
                (begin, -line - 0.2), end - begin, 0.42, boxstyle="round,pad=0,"
                "rounding_size=0.15", fc=f"{tint}40", ec=tint, lw=1,
            )  # fmt: skip
            ax.add_patch(box)
            _write(ax, (begin + end) / 2, -line - 0.36, kind, 0.8 * size)
    ax.set(xlim=(-0.5, wide + 0.5), ylim=(-row - 0.55, 0.35))
    return ax


def _draw_dependencies(
    words: list[str], tree: Tree, truth: Tree | None, ax: "Axes | None"
) -> "Axes":
    """Arcs over the words; wrong ones dashed, with the true ones below."""
    places, wide = word_centres(words, tree.labels)
    found, missed = arcs(places, tree.heads, tree.labels), []
    if truth is not None:
        pairs = zip(truth.heads, tree.heads, strict=True)
        heads = [-1 if head == other else head for head, other in pairs]
        missed = arcs(places, heads, truth.labels)
    wrong = {arc.word for arc in missed}
    height, below = (
        max((arc.level for arc in some), default=0) for some in (found, missed)
    )
    ax = _on(ax, max(3.0, wide * LETTER), (height + below + 2) * LEVEL)
    size = _letters(ax, wide)
    for place, word in zip(places, words, strict=True):
        _write(ax, place, -0.55, word, size)
    for arc in found:
        right, label = arc.word not in wrong, arc.label
        if right and truth is not None and truth.labels[arc.word] != label:
            label = f"{label} (true: {truth.labels[arc.word]})"
        _draw_arc(ax, arc, label, size, CORRECT_COLOUR if right else ERROR_COLOUR, 1)
    for arc in missed:
        _draw_arc(ax, arc, arc.label, size, FAINT, -1)
    floor = -1.1 - (below + 0.6 if missed else 0)
    ax.set(xlim=(-0.5, wide + 0.5), ylim=(floor, height + 0.6))
    return ax


def _draw_arc(
    ax: "Axes", arc: Any, label: str, size: float, tint: str, side: int
) -> None:
    """An arc above the words, or below them, with an arrow at its word."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    base = 0.0 if side > 0 else -1.1
    top = base + side * arc.level
    turn = min(0.8, abs(arc.end - arc.begin) / 3) * (1 if arc.end > arc.begin else -1)
    M, L, Q = Path.MOVETO, Path.LINETO, Path.CURVE3
    if arc.head is None:
        steps = [(M, (arc.end, top)), (L, (arc.end, base))]
    else:
        near = top - side * 0.35
        steps = [
            (M, (arc.begin, base)), (L, (arc.begin, near)),
            (Q, (arc.begin, top)), (Q, (arc.begin + turn, top)),
            (L, (arc.end - turn, top)), (Q, (arc.end, top)), (Q, (arc.end, near)),
            (L, (arc.end, base)),
        ]  # fmt: skip
    codes, places = zip(*steps, strict=True)
    style = "--" if tint == ERROR_COLOUR else "-"
    path = Path(np.array(places), codes)
    ax.add_patch(PathPatch(path, fill=False, ec=tint, lw=1.2, ls=style))
    marker = "v" if side > 0 else "^"
    ax.plot(arc.end, base + side * 0.08, marker, ms=4.5, color=tint)
    if label:
        box = {"fc": "white", "ec": "none", "pad": 0.8}
        middle = (arc.begin + arc.end) / 2
        _write(ax, middle, top, label, 0.8 * size, color=tint, bbox=box)


def _draw_constituents(
    words: list[str], spans: list[tuple[str, int, int]], ax: "Axes | None"
) -> "Axes":
    """Nodes over the words they cover, joined to those that they consist of."""
    edges = np.cumsum([0.0, *(columns(word) + 1.6 for word in words)])
    middle = ((edges[:-1] + edges[1:]) / 2).tolist()
    # the innermost first; of two over the same words the later one is the outer
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
    wide = float(edges[-1])
    width = max(3.0, min(wide * LETTER, 2 * WIDTH))
    ax = _on(ax, width, (height + 1) * 1.4 * LEVEL)
    size = _letters(ax, wide)
    for xs, ys in lines:
        ax.plot(xs, ys, color=FAINT, lw=1, zorder=1)
    box = {"fc": "white", "ec": "none", "pad": 1.0}
    for x, y, name in nodes:
        _write(ax, x, y, name, 0.9 * size, color=CORRECT_COLOUR, bbox=box)
    for x, word in zip(middle, words, strict=True):
        _write(ax, x, 0, word, size, bbox=box)
    ax.set(xlim=(0, wide), ylim=(-0.5, height + 0.5))
    return ax


def _draw_regions(
    output: NDArray[Any], labels: Sequence[str] | None, image: Any, ax: "Axes | None"
) -> "Axes":
    """Regions of an image, coloured and outlined; label 0 has no colour."""
    H, W = output.shape
    ax = _on(ax, WIDTH, WIDTH * H / W if W else 1.0)
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    _show(ax, image, (H, W))
    known = [int(label) for label in np.unique(output) if label > 0]
    layer = np.zeros((H, W, 4))
    for label in known:
        layer[output == label] = to_rgba(colour(label - 1), 0.45)
        if H > 1 and W > 1:
            inside = (output == label).astype(float)
            if inside.min() < inside.max():
                ax.contour(inside, [0.5], colors=[colour(label - 1)], linewidths=1.5)
    ax.imshow(layer, interpolation="nearest")
    handles = [
        Patch(fc=to_rgba(colour(label - 1), 0.45), ec=colour(label - 1),
              label=_name(labels, label))
        for label in known
    ]  # fmt: skip
    if handles:
        ax.legend(handles=handles, loc="upper right", fontsize=SMALL)
    return ax


def _show(ax: "Axes", image: Any, size: tuple[int, int] | None) -> None:
    if image is None:
        return
    pixels = _array(image)
    if size is not None and pixels.shape[:2] != size:
        raise ValueError(f"image: expected {size}, as the output, got {pixels.shape}")
    ax.imshow(pixels, cmap="gray" if pixels.ndim == 2 else None)


def _draw_alignment(
    output: NDArray[Any], words: tuple[Any, Any], ax: "Axes | None"
) -> "Axes":
    """One item over the other: joined if matched, beside a gap if alone."""
    N, M = output.shape[0] - 1, output.shape[1] - 1
    first, second = (_words(w, s) for w, s in zip(words, (N, M), strict=True))
    i = j = 0
    moves = []
    while (i, j) != (N, M) and output[i, j] >= 0:
        move = int(output[i, j])
        moves.append((first[i] if move != 2 else "", second[j] if move != 1 else ""))
        i, j = i + (move != 2), j + (move != 1)
    sizes = [max(columns(a), columns(b), 1) + 1.2 for a, b in moves]
    wide = float(sum(sizes)) or 1.0
    ax = _on(ax, max(2.5, min(2 * WIDTH, wide * LETTER * 1.3)), 1.0)
    size, x = _letters(ax, wide), 0.0
    for (above, below), own in zip(moves, sizes, strict=True):
        middle = x + own / 2
        if above and below:
            ax.plot([middle] * 2, [0.28, 0.72], color=CORRECT_COLOUR, lw=1.5)
        for y, text in ((1.0, above), (0.0, below)):
            _write(ax, middle, y, text or GAP, size, color=INK if text else FAINT)
        x += own
    ax.set(xlim=(0, wide), ylim=(-0.4, 1.4))
    return ax


def _draw_warping(
    output: NDArray[Any], words: tuple[Any, Any], ax: "Axes | None"
) -> "Axes":
    """The pairs on the path, the first sequence down and the second across."""
    on = output >= 0
    N, M = (int(on.any(axis).sum()) for axis in (1, 0))
    ax = _on(ax, 0.62 * WIDTH, 0.62 * WIDTH * min(2.0, max(0.4, N / max(M, 1))))
    from matplotlib.ticker import MaxNLocator

    ax.set_axis_on()
    ax.imshow(np.where(on[:N, :M], 1.0, 0.0), cmap="Blues", vmin=0, vmax=1.4)
    path = np.argwhere(on[:N, :M])
    ax.plot(path[:, 1], path[:, 0], color=INK, lw=1.5, marker=".", ms=4)
    ax.set(xlabel="second", ylabel="first")
    for own, axis, size in ((words[0], ax.yaxis, N), (words[1], ax.xaxis, M)):
        if own is not None:
            axis.set_ticks(range(size), _words(own, size))
        else:
            axis.set_major_locator(MaxNLocator(integer=True))
    return ax


def _draw_matching(
    output: NDArray[Any],
    words: tuple[Any, Any],
    truth: NDArray[Any] | None,
    ax: "Axes | None",
) -> "Axes":
    """Two lists and lines between partners; wrong ones dashed, missed ones grey."""
    rows = len(output)
    known = [output, *([] if truth is None else [truth])]
    most = max(int(some.max(initial=-1)) for some in known)
    size = most + 1 if words[1] is None else len(words[1])
    left, right = _words(words[0], rows), _words(words[1], size)
    ax = _on(ax, 4.5, 0.28 * max(rows, size) + 0.3)
    for side, names in ((0, left), (1, right)):
        for number, name in enumerate(names):
            _write(
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
    """A graph, with the arcs of the path in colour."""
    if index.shape != (len(output), 2):
        raise ValueError(f"index: expected ({len(output)}, 2), got {index.shape}")
    real = (output >= 0) & (index >= 0).all(1)
    index, used = index[real], output[real] > 0
    nodes = int(index.max(initial=-1)) + 1
    places = _layers(index, nodes) if points is None else _array(points).astype(float)
    if places.ndim != 2 or places.shape[1] != 2 or len(places) < nodes:
        raise ValueError(f"points: expected ({nodes}, 2), got {places.shape}")
    ax = _on(ax, 0.75 * WIDTH, 0.5 * WIDTH)
    from matplotlib.patches import FancyArrowPatch

    for (a, b), on in zip(index.tolist(), used.tolist(), strict=True):
        tint, width = (CORRECT_COLOUR, 2.2) if on else (PALE, 1.0)
        arrow = FancyArrowPatch(
            places[a], places[b], arrowstyle="-|>", mutation_scale=12, shrinkA=9,
            shrinkB=9, zorder=1 + on, in_layout=False, color=tint, lw=width,
        )  # fmt: skip
        ax.add_patch(arrow)
    visited = set(index[used].ravel().tolist())
    for node, (x, y) in enumerate(places[:nodes]):
        tint = CORRECT_COLOUR if node in visited else FAINT
        ax.plot(x, y, "o", ms=16, mfc="white", mec=tint, mew=1.5, zorder=3)
        _write(ax, x, y, str(node), SMALL, zorder=4)
    lowest, highest = places.min(0), places.max(0)
    room = 0.12 * (highest - lowest) + 0.1
    (left, low), (right, high) = lowest - room, highest + room
    ax.set(xlim=(left, right), ylim=(low, high))
    return ax


def _layers(index: NDArray[Any], nodes: int) -> NDArray[np.float64]:
    """Nodes in layers by the most arcs on a path to them; on a circle with cycles."""
    depth = np.zeros(nodes, dtype=int)
    for _ in range(nodes):
        before = depth.copy()
        np.maximum.at(depth, index[:, 1], before[index[:, 0]] + 1)
        if (depth == before).all():
            break
    else:
        turn = 2 * np.pi * np.arange(nodes) / max(nodes, 1)
        return np.stack([np.cos(turn), np.sin(turn)], 1)
    places = np.zeros((nodes, 2))
    for layer in range(depth.max(initial=0) + 1):
        own = np.flatnonzero(depth == layer)
        places[own, 0] = layer
        # a little aslant, so that no arc runs behind a node of a layer between
        places[own, 1] = (len(own) - 1) / 2 - np.arange(len(own)) + 0.15 * (layer % 2)
    return places


def _draw_boxes(
    output: NDArray[Any],
    labels: Sequence[str] | None,
    image: Any,
    truth: NDArray[Any] | None,
    ax: "Axes | None",
) -> "Axes":
    """Named boxes on an image, the first one thick; true ones dashed."""
    if output.ndim not in (1, 2) or output.shape[-1] != 4:
        raise ValueError(
            f"output: expected boxes (4,) or (K, 4), got shape {output.shape}"
        )
    shape = _array(image).shape if image is not None else (3, 4)
    ax = _on(ax, WIDTH, WIDTH * shape[0] / shape[1])
    from matplotlib.patches import Rectangle

    _show(ax, image, None)
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
        place = (left - 0.5, top - 0.5)
        width = 2.5 if number in (0, len(boxes)) else 1.2
        size = (right - left + 1, bottom - top + 1)
        ax.add_patch(Rectangle(place, *size, fill=False, ec=tint, lw=width, ls=style))
    for (top, left, *_), name in zip(boxes, names, strict=True):
        if len(tints) > 1:
            box = {"facecolor": tints[name], "edgecolor": "none", "pad": 1}
            around: dict[str, Any] = {"ha": "left", "va": "top", "bbox": box}
            _write(ax, left - 0.5, top - 0.5, name, SMALLEST, color="w", **around)
    if image is None:
        ax.autoscale_view()
        ax.set_aspect("equal")
        if not ax.yaxis_inverted():
            ax.invert_yaxis()
    return ax
