"""Loading of trained models."""

import os
from typing import Any

import torch

from smoothsp.models import constituency_parser, files, parser, segmenter, tagger

__all__ = ["load"]

VERSION = 1
LOCALISER = "smoothsp.models.Localiser"
KINDS: dict[str, Any] = {
    kind.FORMAT: kind for kind in (tagger, parser, constituency_parser, segmenter)
}
# what a localiser needs and a tagger does not
LIBRARIES = {"cv2": "opencv", "PIL": "pillow", "torchvision": "torchvision"}


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
    place, target = files.check_folder_path(folder), _device(device)
    config, content = files.read(place)
    found, version = config.get("format"), config.get("version")
    known = (*KINDS, LOCALISER)
    # True is equal to 1, too
    if found not in known or type(version) is not int or version != VERSION:
        raise ValueError(
            f"{place / files.CONFIG}: expected format {' or '.join(known)} in version "
            f"{VERSION}, got {found!r} in version {version!r}"
        )
    if found == LOCALISER:
        model: Any = _localisers().from_folder(place, config, content)
    else:
        model = KINDS[str(found)].from_folder(place, config, content)
    model.network.to(target)
    return model


def _device(given: object) -> torch.device:
    """Device to compute on, checked."""
    if given is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    words = "device: expected one that PyTorch has here, 'cpu' say, got"
    if not isinstance(given, str | torch.device) and type(given) is not int:
        raise TypeError(f"{words} {type(given).__name__}")
    try:
        found = torch.device(given)
        if found.type != "meta":
            torch.empty(0, device=found)
            return found
    except (AssertionError, ImportError, RuntimeError) as error:
        raise ValueError(f"{words} {str(given)!r}") from error
    raise ValueError(f"{words} 'meta', which computes nothing")


def _localisers() -> Any:
    try:
        from smoothsp.models import localiser
    except ModuleNotFoundError as error:
        if error.name not in LIBRARIES:
            raise
        raise ModuleNotFoundError(
            f"smoothsp.models: localisers need {LIBRARIES[error.name]}: pip install"
            ' "smoothsp[localiser]"',
            name=error.name,
        ) from error
    return localiser
