"""Compiled inner loops, and the views of rows, targets and weights that they take as arguments."""
