"""What structures share whose maxima are found by a search of their own."""
