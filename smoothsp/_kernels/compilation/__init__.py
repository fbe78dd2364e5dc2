"""How kernels are compiled, and when a compiled one is still valid."""
