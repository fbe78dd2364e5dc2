"""The k best outputs by partitioning the output space at each listed output."""
