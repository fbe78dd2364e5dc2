"""Ranges of rows handed to threads, and the cores that these wake on."""
