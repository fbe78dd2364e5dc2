"""Chains on the CPU: forward-backward, Viterbi, k best, samples, validation."""
