"""scikit-learn estimators over the problems and the solvers."""
