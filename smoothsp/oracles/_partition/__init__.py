"""The k best outputs from constrained maxima: what is left is parted at each output."""
