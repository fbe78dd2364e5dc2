"""A trained network of spans as a folder: weights, ``config.json`` and words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from runs.model_folder import files_of, format_of
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Vocabulary
from smoothsp.models.files import about_of
from smoothsp.models.restoring import keep, require_sizes, restored
from smoothsp.models.word_vectors import Sizes


def save(
    folder: Path,
    model: nn.Module,
    vocabulary: Vocabulary,
    labels: Sequence[str],
    about: Mapping[str, Any],
) -> None:
    """Replace the model in a folder in one step, or make one."""
    config = {"format": format_of(type(model)), "labels": list(labels)}
    keep(folder, config | {"about": dict(about)}, model, vocabulary, None)


def load(
    folder: Path, kind: type[nn.Module]
) -> tuple[Any, Vocabulary, list[str], dict[str, Any]]:
    """What was saved, of this kind of network. Runs no code that is in the folder."""
    config, content = files_of(folder, format_of(kind))

    def build(
        config: Mapping[str, Any],
        vocabulary: Vocabulary,
        labels: list[str],
        _: Encoder | None,
    ) -> nn.Module:
        sizes = Sizes(**config["sizes"])
        require_sizes(sizes, "word", "hidden", "layers", "arc")
        return kind(vocabulary, labels, sizes)

    model, labels, vocabulary = restored(folder, config, content, build)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    about = about_of(folder / "config.json", config) or {}
    return model.to(device).eval(), vocabulary, labels, about
