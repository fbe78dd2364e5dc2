"""From sentences to sparse matrices, by templates."""

from smoothsp.linear.features.templates import Templates

__all__ = ["Templates"]
