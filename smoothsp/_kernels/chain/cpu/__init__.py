"""Chains on the CPU: sums, best and k best outputs, samples, faults."""
