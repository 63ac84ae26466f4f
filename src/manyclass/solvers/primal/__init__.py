"""Solvers that lower the objective itself."""
