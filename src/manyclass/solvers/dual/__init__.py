"""Dual solvers: Prox-SDCA and its variants."""
