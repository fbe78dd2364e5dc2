"""Common parts of structures that are decoded by a search."""
