"""Prox-SDCA and its relatives: solvers that raise the dual."""
