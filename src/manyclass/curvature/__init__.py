"""Curvatures of log-linear models: the partition function's quadratic bound, full and of low rank."""
