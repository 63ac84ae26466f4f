"""What the package tells people about their data and models."""

from manyclass.report.advice import Advice, Facts, advise

__all__ = ["Advice", "Facts", "advise"]
