"""Chains on CUDA devices: forward-backward, Viterbi, samples, covariances."""
