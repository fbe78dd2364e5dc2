"""From sentences to sparse matrices, by templates; from kernels to features."""

from smoothsp.linear.features.kernel_features import KernelFeatures
from smoothsp.linear.features.templates import Templates, Words

__all__ = ["KernelFeatures", "Templates", "Words"]
