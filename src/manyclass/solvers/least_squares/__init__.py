"""Least squares, generalized, calibrated and stagewise: the loops behind the estimators.

Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
prediction", ICML 2014.
"""
