"""Chains on CUDA devices: the same questions as in ``chain.cpu``."""
