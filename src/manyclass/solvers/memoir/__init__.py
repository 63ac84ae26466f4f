"""MEMOIR: stochastic steps on a row's class and its best rival."""
