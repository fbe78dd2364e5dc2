"""SIMD vectors, small matrix products, exponentials, compensated sums."""
