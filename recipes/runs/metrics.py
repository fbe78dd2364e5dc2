"""The file of metrics, and the last line of a run."""

from pathlib import Path
from typing import Any

from runs import files


def write_metrics(
    main_file: Path,
    settings: dict[str, Any],
    history: list[dict[str, Any]],
    monitor: str,
    scores: dict[str, Any],
    result: dict[str, float],
) -> dict[str, float]:
    """Write ``metrics.json`` beside ``shown``; return the chief numbers.

    Parameters
    ----------
    shown
        A file of the run that is worth a look.
    settings, history
        Those of the run.
    by
        The score that says which epoch is best.
    scores
        Scores of each method that is compared.
    result
        Chief numbers; the best epoch and the last loss come first.
    """
    best = max(history, key=lambda row: row[monitor])
    result = {"best_epoch": float(best["epoch"]), "loss": history[-1]["loss"]} | result
    content = {"settings": settings, "history": history, "result": result}
    files.write_json(main_file.parent / "metrics.json", content | {"scores": scores})
    cpu = sum(row["cpu_seconds"] for row in history)
    print(
        f"\nbest epoch {best['epoch']}, {cpu:.0f} s of CPU time in all; see"
        f" {main_file} and metrics.json beside it"
    )
    return result
