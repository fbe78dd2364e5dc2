"""The README as an index of packages shows it, where relative links lead nowhere.

``SMOOTHSP_REPOSITORY`` is the address of the repository, which the release sets: links
and images then lead to the files of this version's tag. Without it links lose their
target and keep their words.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
CODE = re.compile(r"(```.*?```)", re.DOTALL)


class ReadmeHook(MetadataHookInterface):
    """Fills in what ``pyproject.toml`` calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Give the README, and the address if it is known."""
        repository = os.environ.get("SMOOTHSP_REPOSITORY", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, repository, metadata["version"]),
        }
        if repository:
            metadata["urls"] = {"Repository": repository}


def with_absolute_links(text: str, repository: str, version: str) -> str:
    """Relative links to the tag of a version, code left as it is."""

    def absolute(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if "://" in target or target.startswith("#"):
            return link[0]
        if not repository:
            return words
        kind = "raw" if image else "blob"
        return f"{image}[{words}]({repository}/{kind}/v{version}/{target})"

    blocks = CODE.split(text)
    blocks[::2] = [LINK.sub(absolute, block) for block in blocks[::2]]
    return "".join(blocks)
