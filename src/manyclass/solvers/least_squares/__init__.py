"""Generalized, calibrated and stagewise least squares: the solver and the loops of the estimators.

Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
prediction", ICML 2014.
"""
