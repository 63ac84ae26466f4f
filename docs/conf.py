"""The documentation site: ``nox -s docs`` builds it from the pages of this folder, the docstrings and the examples."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

from sphinx.util.inspect import stringify_signature
from sphinx_gallery.sorting import ExplicitOrder

import manyclass

project = "manyclass"
author = "The manyclass developers"
copyright = "The manyclass developers, BSD-3-Clause"
version = release = manyclass.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
exclude_patterns = ["_build", "auto_examples/*.ipynb", "auto_examples/*.py.md5"]
templates_path = ["_templates"]
highlight_language = "none"  # of indented blocks, which are formulas and commands; Python is marked as such

# Headings become anchors, so that pages link to sections as they do on a forge.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings have the types
numpydoc_show_class_members = False  # the template of a class lists its methods
numpydoc_class_members_toctree = False
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = f"manyclass {version}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars: dict[str, list[str]] = {"index": [], "start": [], "guide": []}  # pages without pages below them
html_theme_options: dict[str, Any] = {
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
}

#: The examples in the order of the gallery: what most users start with, then results, then what few need.
_EXAMPLES = (
    "quickstart",
    "short_texts",
    "label_sets",
    "images",
    "embeddings",
    "regularization_path",
    "probabilities",
    "calibration",
    "class_frequencies",
    "certificate_curve",
    "warm_start",
    "memoir",
    "out_of_core",
    "word_segmentation",
    "chain_crf",
)
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": ExplicitOrder(
        [f"{name}.py" for name in _EXAMPLES]
    ),  # one that is not listed is an error
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 60,
    "write_computation_times": False,  # its page needs scripts of other sites
    "abort_on_example_error": True,
}
warnings.filterwarnings("ignore", message=".*FigureCanvasAgg is non-interactive.*", category=UserWarning)


#: Names that docstrings end with an underscore, and bars of absolute values: markup in reStructuredText, not here.
_MARKUP = re.compile(r"(``[^`]*``|`[^`]*`_?)|(?<![\\|])(\||(?<=\w)_(?!\w))")
#: Files outside this folder that pages link to, and the pages that have them.
_PAGES = {
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changelog.md",
    "../examples": "auto_examples/index.rst",
}


def skip_inherited(app: Any, what: str, name: str, item: Any, skip: bool, options: Any) -> bool | None:
    """Methods that scikit-learn and Python define are described there."""
    module = getattr(item, "__module__", None) or getattr(getattr(item, "fget", None), "__module__", None)
    return True if isinstance(module, str) and not module.startswith("manyclass") else None


def class_signature(
    app: Any, what: str, name: str, item: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """The parameters of a class are those of ``__init__``, where autodoc shows those of ``__new__``."""
    if not inspect.isclass(item) or signature != "(*args, **kwargs)":
        return None
    if getattr(item, "_is_protocol", False):
        return "", returned
    return stringify_signature(inspect.signature(item), show_annotation=False), returned


def escape_markup(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written for `help`: what looks like markup is escaped, except in examples and literals."""
    example = False
    for at, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example and not line.lstrip().startswith(".. "):
            lines[at] = _MARKUP.sub(lambda found: found[1] or "\\" + found[2], line)


def link_pages(app: Any, page: str, source: list[str]) -> None:
    """Links to files of the repository become links to the pages that show them."""
    source[0] = re.sub(r"\]\(../examples/(\w+)\.py\)", r"](auto_examples/\1.rst)", source[0])
    for file, shown in _PAGES.items():
        up = "../" * page.count("/")
        source[0] = source[0].replace(f"]({up}{file})", f"]({up}{shown})")


def setup(app: Any) -> None:
    """What Sphinx calls first."""
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-signature", class_signature)
    app.connect("autodoc-process-docstring", escape_markup, priority=600)  # after numpydoc
    app.connect("source-read", link_pages)
