"""SIMD vectors, one sequence per lane, exponentials, compensated sums."""
