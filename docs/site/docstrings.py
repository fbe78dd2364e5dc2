"""Docstrings as Markdown: formulas and roles of reStructuredText are rewritten."""

import re
import textwrap
from typing import Any

from griffe import Extension

MATH = re.compile(r"^\.\. math::[ ]?(.*(?:\n(?:[ ]+\S.*|[ ]*$))*)", re.MULTILINE)
ROLE = re.compile(r":math:`([^`]+)`")
# of a name, whose module is left out behind a tilde
NAME = re.compile(r":(?:attr|class|func|meth|mod):`(?:~(?:\w+\.)*)?([^`]+)`")


class FromRestructuredText(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """``.. math::`` and its role between dollars, roles of names as code."""

    def block(match: re.Match[str]) -> str:
        first, _, rest = match[1].partition("\n")
        tex = f"{first}\n{textwrap.dedent(rest)}".strip()
        return f"$$\n{tex}\n$$\n\n"

    return NAME.sub(r"`\1`", ROLE.sub(r"$\1$", MATH.sub(block, text)))
