"""The fitting loop: runs a solver, times it, certifies, reports, stops, writes checkpoints."""
