"""Ways of a chain's questions to its kernels."""
