"""Test accuracies (%) that the paper prints, both solvers alike.

Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
tables 4, 5 and 6, of the sets that ``multiclass_svm.py`` can read as they are.
"""

LOG2_C = tuple(range(-6, 4))

ACCURACY = {
    0.09: {
        "dna": (94.60, 94.69, 94.52, 94.44, 93.59, 92.92, 93.09, 92.83, 92.50, 92.83),
        "satimage": (
            81.95, 82.45, 82.85, 83.75, 83.55, 84.10, 83.95, 83.30, 83.95, 84.00
        ),
        "mnist": (92.01, 92.16, 91.97, 92.15, 91.92, 91.76, 91.62, 91.66, 91.70, 91.58),
        "letter": (
            69.62, 71.46, 70.92, 69.82, 69.72, 70.74, 70.50, 70.74, 71.00, 69.22
        ),
    },
    0.009: {
        "dna": (94.77, 94.77, 94.94, 94.69, 93.59, 93.09, 92.24, 92.24, 92.16, 92.16),
        "satimage": (
            82.35, 82.50, 82.95, 83.55, 83.55, 84.10, 84.35, 84.20, 84.05, 84.25
        ),
        "mnist": (92.34, 92.28, 92.41, 92.37, 92.26, 92.13, 92.12, 91.98, 91.94, 91.70),
        "letter": (
            69.98, 71.02, 71.74, 71.52, 71.36, 71.46, 71.20, 71.56, 71.44, 70.74
        ),
    },
    0.0009: {
        "dna": (94.77, 94.69, 95.11, 94.77, 93.76, 93.34, 92.41, 92.24, 92.24, 92.24),
        "satimage": (
            82.35, 82.65, 83.20, 83.65, 83.80, 84.10, 84.20, 84.10, 84.15, 84.10
        ),
        "mnist": (92.28, 92.38, 92.43, 92.24, 92.21, 92.13, 92.16, 91.92, 91.79, 91.65),
        "letter": (
            70.04, 71.28, 71.70, 71.66, 71.48, 71.30, 71.26, 71.30, 71.02, 71.22
        ),
    },
}  # fmt: skip


def accuracy(name: str, log2_c: int, tolerance: float) -> float | None:
    """What the paper has for a set, or None."""
    row = ACCURACY.get(tolerance, {}).get(name)
    return row[LOG2_C.index(log2_c)] if row and log2_c in LOG2_C else None
