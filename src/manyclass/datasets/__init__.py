"""Problems to try things on."""

from manyclass.datasets.synthetic import make_many_classes

__all__ = ["make_many_classes"]
