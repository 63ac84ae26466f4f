"""The fitting loop: runs a solver, measures time, computes duality gaps, reports, stops, writes checkpoints."""
