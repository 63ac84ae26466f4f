"""MEMOIR: a multi-class SVM by stochastic steps on the class of a row and its best rival class."""
