"""Features: sparse matrices of sentences by templates, and kernel features."""

from smoothsp.linear.features.kernel_features import KernelFeatures
from smoothsp.linear.features.templates import Templates, Words

__all__ = ["KernelFeatures", "Templates", "Words"]
