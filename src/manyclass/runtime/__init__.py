"""Threads, memory limits and atomic writes, used by all other modules."""
