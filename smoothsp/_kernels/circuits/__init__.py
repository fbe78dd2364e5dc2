"""Kernels of circuits: any dynamic programme, on the CPU by numba."""
