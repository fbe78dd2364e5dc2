"""Engine of linear chains: buffers, validation, and calls of CPU and CUDA kernels."""
