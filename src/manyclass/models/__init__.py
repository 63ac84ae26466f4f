"""Fitted models (linear, staged, sharded): prediction, saving and loading."""
