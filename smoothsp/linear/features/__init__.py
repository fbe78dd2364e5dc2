"""From sentences to sparse matrices, by templates."""

from smoothsp.linear.features.templates import Templates, Words

__all__ = ["Templates", "Words"]
