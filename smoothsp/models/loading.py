"""``load``: models of any type from their folders."""

import os
from typing import Any

import torch

from smoothsp.models import constituency_parser, files, parser, segmenter, tagger

__all__ = ["load"]

VERSION = 1
LOCALISER = "smoothsp.models.Localiser"
MODULES: dict[str, Any] = {
    kind.FORMAT: kind for kind in (tagger, parser, constituency_parser, segmenter)
}
# Libraries of localisers, by import name: their absence is explained.
LOCALISER_LIBRARIES = {"cv2": "opencv", "PIL": "pillow", "torchvision": "torchvision"}


def load(
    folder: str | os.PathLike[str], device: str | torch.device | None = None
) -> Any:
    """Load a model that ``save`` wrote, without running code from the folder.

    Parameters
    ----------
    folder
        Folder with ``model.safetensors`` and ``config.json``; for taggers and parsers
        also ``vocabulary.json``.
    device
        Device of the model; by default a GPU if there is one.

    Returns
    -------
    Tagger, Parser, ConstituencyParser, Segmenter or Localiser
        According to ``config.json``: see :class:`~smoothsp.models.Tagger`,
        :class:`~smoothsp.models.Parser`, :class:`~smoothsp.models.ConstituencyParser`,
        :class:`~smoothsp.models.Segmenter` and
        :class:`~smoothsp.models.localiser.Localiser`.

    Raises
    ------
    FileNotFoundError
        If there is no model.
    TypeError
        If ``folder`` is not a path or ``device`` not a name.
    ModuleNotFoundError
        If a localiser needs a library that is not installed.
    ValueError
        If a file is missing, damaged or edited, or the device does not exist. Also if
        weights are missing, superfluous, of wrong shapes or not finite. The message
        names the file.
    """
    path, target_device = files.check_folder_path(folder), _resolve_device(device)
    config, content = files.read(path)
    model_format, version = config.get("format"), config.get("version")
    formats = (*MODULES, LOCALISER)
    # type(), since True == 1.
    if model_format not in formats or type(version) is not int or version != VERSION:
        raise ValueError(
            f"{path / files.CONFIG}: expected format {' or '.join(formats)} in version "
            f"{VERSION}, got {model_format!r} in version {version!r}"
        )
    if model_format == LOCALISER:
        model: Any = _import_localiser().from_folder(path, config, content)
    else:
        model = MODULES[str(model_format)].from_folder(path, config, content)
    model.network.to(target_device)
    return model


def _resolve_device(device: object) -> torch.device:
    """Return the requested device, or a GPU if there is one; raise if unusable."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    message = "device: expected one that PyTorch has here, 'cpu' say, got"
    if not isinstance(device, str | torch.device) and type(device) is not int:
        raise TypeError(f"{message} {type(device).__name__}")
    try:
        resolved = torch.device(device)
        # An empty tensor shows whether the device exists.
        if resolved.type != "meta":
            torch.empty(0, device=resolved)
            return resolved
    except (AssertionError, ImportError, RuntimeError) as error:
        raise ValueError(f"{message} {str(device)!r}") from error
    raise ValueError(f"{message} 'meta', which computes nothing")


def _import_localiser() -> Any:
    try:
        from smoothsp.models import localiser
    except ModuleNotFoundError as error:
        if error.name not in LOCALISER_LIBRARIES:
            raise
        raise ModuleNotFoundError(
            f"smoothsp.models: localisers need {LOCALISER_LIBRARIES[error.name]}: pip"
            ' install "smoothsp[localiser]"',
            name=error.name,
        ) from error
    return localiser
