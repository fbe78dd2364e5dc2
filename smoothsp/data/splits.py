"""Training, development and test files of a corpus, found by common names."""

from dataclasses import dataclass
from pathlib import Path

from smoothsp.data.text_files import as_path

__all__ = ["SplitFiles", "find_splits"]

SUFFIXES = ("", ".txt", ".conll", ".tsv", ".iob", ".bio")
NAME_FAMILIES = [
    ("eng.train", "eng.testa", "eng.testb"),
    ("NER-de-train.tsv", "NER-de-dev.tsv", "NER-de-test.tsv"),
    ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    *(
        (f"train{ending}", f"{dev}{ending}", f"test{ending}")
        for ending in SUFFIXES
        for dev in ("dev", "valid")
    ),
]


@dataclass(frozen=True)
class SplitFiles:
    """Files of the training, development and test set.

    Examples
    --------
    >>> SplitFiles(Path("train.txt"), Path("dev.txt"), None).test is None
    True
    """

    train: Path
    dev: Path
    test: Path | None


def find_splits(folder: str | Path) -> SplitFiles:
    """Find the files of a corpus by common names.

    Returns the first family of names of which ``folder`` holds both training and
    development file; its test file may be missing.
    """
    folder = as_path(folder, "folder")
    if not folder.is_dir():
        state = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder with a training and a development file,"
            f" got {state}. Give the folder that holds the files"
        )
    for names in NAME_FAMILIES:
        train, dev, test = (folder / name for name in names)
        if train.is_file() and dev.is_file():
            return SplitFiles(train, dev, test if test.is_file() else None)
    contents = sorted(path.name for path in folder.iterdir())
    shown = ", ".join(contents[:20]) + (", ..." if len(contents) > 20 else "")
    endings = ", ".join(ending or "no ending" for ending in SUFFIXES)
    raise FileNotFoundError(
        f"{folder}: expected a training and a development file, got"
        f" {shown or 'an empty folder'}. Looked for eng.train with eng.testa;"
        " NER-de-train.tsv with NER-de-dev.tsv; wnut17train.conll with"
        " emerging.dev.conll; train with dev or valid, both with the same ending"
        f" ({endings}). Rename the files to one of these"
    )
