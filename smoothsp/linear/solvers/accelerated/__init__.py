"""Nesterov's accelerated gradient methods by estimate functions."""
