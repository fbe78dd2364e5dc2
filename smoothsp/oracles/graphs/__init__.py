"""Structures on graphs: scores of nodes and of edges."""
