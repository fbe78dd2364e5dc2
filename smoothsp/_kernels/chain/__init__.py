"""Kernels of chains: for the CPU by numba, for CUDA devices by Triton."""
