"""Suggestions of known names for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["did_you_mean"]


def did_you_mean(given: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return the end of an error message that suggests a known name, or an empty string if none is close.

    Examples
    --------
    >>> did_you_mean("logistic", ["log_loss"], {"logistic": "log_loss"})
    ": did you mean 'log_loss'?"
    >>> did_you_mean("multinominal", ["multinomial", "hinge"])
    ": did you mean 'multinomial'?"
    >>> did_you_mean("", ["hinge"])
    ''
    """
    word = given.lower().replace("-", "_")
    if synonyms and word in synonyms:
        return f": did you mean {synonyms[word]!r}?"
    import difflib  # imported here: `manyclass --help` does not need it

    near = difflib.get_close_matches(word, list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""
