"""The regularisation path: certified solutions for a range of lambda."""
