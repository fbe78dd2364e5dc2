"""Sentences as HTML, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape

from smoothsp.figures.style import CORRECT_COLOUR, arcs, colour, word_centres

__all__ = ["tagged_html", "tree_html"]

# Pixels: width of a letter, height of a level of arcs and of a line, corner radius.
LETTER, LEVEL, LINE, CORNER = 8.0, 22.0, 24.0, 6.0


def tagged_html(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Return a text as HTML, with coloured and named spans (start, end, type)."""
    spans = list(spans)
    order = sorted({kind for _, _, kind in spans})
    html, last = "", 0
    for start, end, kind in spans:
        tint = colour(order.index(kind))
        html += (
            f'{escape(text[last:start])}<mark style="background:{tint}40;'
            f"border-bottom:2px solid {tint};color:inherit;padding:1px 3px;"
            f'border-radius:3px">{escape(text[start:end])}<span style="font-size:75%;'
            f'opacity:.8;margin-left:4px">{escape(kind)}</span></mark>'
        )
        last = end
    return f'<div style="line-height:2">{html}{escape(text[last:])}</div>'


def tree_html(words: Sequence[str], heads: Sequence[int], labels: Sequence[str]) -> str:
    """Return a dependency tree as HTML: words below SVG arcs."""
    centres, width = word_centres(words, labels)
    tree = arcs(centres, heads, labels)
    floor = max((arc.level for arc in tree), default=0) * LEVEL + 14
    svg = ""
    for arc in tree:
        begin, end = arc.begin * LETTER, arc.end * LETTER
        top = floor - arc.level * LEVEL
        if arc.head is None:
            line = f"M{end:.1f},{top:.1f}V{floor - 5:.1f}"
        else:
            turn = CORNER if end > begin else -CORNER
            line = f"M{begin:.1f},{floor:.1f}V{top + CORNER:.1f}"
            line += f"Q{begin:.1f},{top:.1f} {begin + turn:.1f},{top:.1f}"
            line += (
                f"H{end - turn:.1f}Q{end:.1f},{top:.1f} {end:.1f},{top + CORNER:.1f}"
            )
            line += f"V{floor - 5:.1f}"
        stroke = f'stroke="{CORRECT_COLOUR}" stroke-width="1.3"'
        svg += f'<path d="{line}" fill="none" {stroke}/>'
        tip = f"{end - 3.5:.1f},{floor - 6:.1f} {end + 3.5:.1f},{floor - 6:.1f}"
        svg += (
            f'<polygon points="{tip} {end:.1f},{floor:.1f}" fill="{CORRECT_COLOUR}"/>'
        )
        svg += _svg_text((begin + end) / 2, top - 3, arc.label, 10)
    for centre, word in zip(centres, words, strict=True):
        svg += _svg_text(centre * LETTER, floor + 15, word, 13)
    return (
        f'<div style="overflow-x:auto"><svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{width * LETTER:.0f}" height="{floor + LINE:.0f}" '
        f'font-family="sans-serif">{svg}</svg></div>'
    )


def _svg_text(x: float, y: float, text: str, size: int) -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="middle"'
    return f'<text {attributes} fill="currentColor">{escape(text)}</text>'
