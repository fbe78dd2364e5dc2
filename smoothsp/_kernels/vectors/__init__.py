"""Vectors in registers, one sequence per lane, exponentials, long sums."""
