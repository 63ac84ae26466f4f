"""Advice on the choice of a loss, a solver and a penalty for given data."""

from manyclass.report.advice import Advice, Facts, advise

__all__ = ["Advice", "Facts", "advise"]
