"""The k best outputs: what is left is parted at each output."""
