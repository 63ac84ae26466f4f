"""Primal solvers, which minimize the objective over the weights."""
