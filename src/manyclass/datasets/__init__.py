"""Generated data sets."""

from manyclass.datasets.synthetic import make_many_classes

__all__ = ["make_many_classes"]
