"""Compilation of kernels with numba, and validity of their cache on disk."""
