"""The page of `write_report`, and the documentation site where it is built, in a headless browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from sklearn.datasets import load_digits

from browser import look
from manyclass import LinearClassifier, LinearModel, write_report

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
site = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="the site is not built: nox -s docs")
WIDTHS = [390, 1280]
#: Elements that end to the right of the page, and not in a part that scrolls; images that are missing.
LAYOUT = """
const doc=page.document, width=doc.documentElement.clientWidth, over=[];
for(const item of doc.querySelectorAll(".bd-article *, section *")){const box=item.getBoundingClientRect();
if(!box.width||box.right<=width+1)continue;let up=item,scrolls=false;
while(up&&up!==doc.body){if(page.getComputedStyle(up).overflowX!=="visible"){scrolls=true;break}up=up.parentElement}
if(!scrolls)over.push(item.tagName+" "+item.textContent.slice(0,40))}
const missing=[...doc.images].filter(i=>i.complete&&!i.naturalWidth).map(i=>i.src);
const found={wide:doc.documentElement.scrollWidth-width,over:over.slice(0,5),missing};
"""
TYPE = """
const box=doc.getElementById("search");
const names=()=>[...doc.querySelectorAll("#found article b")].map(b=>b.textContent);
found.before=names();box.value="class4321";box.dispatchEvent(new page.Event("input"));found.after=names();
found.text=doc.querySelector("#found article div").textContent;
box.value="no such class";box.dispatchEvent(new page.Event("input"));found.none=names();return found;
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_works_in_a_browser(tmp_path, width):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(40, 10_000)).astype(np.float32)
    names = np.array([f"word{j}" for j in range(40)])
    classes = np.array([f"class{c}" for c in range(10_000)])
    pages = tmp_path / "pages"
    pages.mkdir()
    model = LinearModel(W, np.zeros(10_000, np.float32), classes, "multiclass", feature_names=names)
    rows = rng.normal(size=(300, 40)).astype(np.float32)
    y = rng.integers(0, 10_000, 300)
    write_report(model, pages / "many.html", rows, classes[y])
    frequent = np.argsort(-np.bincount(y, minlength=10_000), kind="stable")[:20]
    X, y = load_digits(return_X_y=True)
    digits = LinearClassifier(alpha=1e-3, random_state=0).fit(X[:900] / 16, y[:900])
    write_report(digits, pages / "digits.html", X[900:] / 16, y[900:])
    (pages / "model.html").write_text(digits.report_, encoding="utf-8")

    (many, *small), requests, console = look(
        pages, ["many.html", "digits.html", "model.html"], LAYOUT + "if(!doc.title.includes('multiclass'))return found;"
        "if(page.location.pathname!=='/many.html')return found;" + TYPE, width, tmp_path / "profile"
    )  # fmt: skip
    assert console == ""
    assert requests == ["/many.html", "/digits.html", "/model.html"]
    for found in (many, *small):
        assert found["wide"] <= 0
        assert found["over"] == found["missing"] == []
    assert many["before"] == [f"class{c}" for c in frequent]
    assert many["after"] == ["class4321"]
    top, weights = model.top_features("class4321")
    assert many["text"] == ", ".join(f"{name} {w:+.3g}" for name, w in zip(top, weights))
    assert many["none"] == []
    assert (pages / "many.html").stat().st_size < 4 << 20


class Page(HTMLParser):
    """Anchors and links of a page, and whether it has a link to the next one."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.next = set(), [], False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.next |= "right-next" in (found.get("class") or "")


def _site():
    return sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


@site
def test_links_and_anchors_of_the_site_exist_and_each_page_has_a_next_one():
    pages = {path.resolve(): Page(path) for path in _site()}
    assert len(pages) > 150
    broken, without = [], []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            ):
                broken.append(f"{path.name}: {link}")
        if not page.next:
            without.append(path.stem)
    assert broken == []
    assert sorted(without) == ["changelog", "genindex", "search"]  # the changelog's text has a next step


@site
def test_the_reference_shows_the_parameters_of_classes():
    for path in sorted((SITE / "generated").glob("*.html")):
        text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
        assert "(*args, **kwargs)" not in text, path.name


@site
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_of_the_site_fit_the_window(tmp_path, width):
    pages = [path.relative_to(SITE).as_posix() for path in _site()]
    looked, _, console = look(SITE, pages, LAYOUT + "return found;", width, tmp_path / "profile")
    assert "Uncaught" not in console
    assert "Failed to load resource" not in console
    wrong = [(page, found) for page, found in zip(pages, looked, strict=True)
             if "error" in found or found["wide"] > 0 or found["over"] or found["missing"]]  # fmt: skip
    assert wrong == []


@site
def test_the_search_of_the_site_finds_pages(tmp_path):
    wanted = {
        "duality gap": "certificate.html",
        "inner product search": "mips.html",
        "fastText": "coming_from.html",
        "write_report": "generated/manyclass.write_report.html",
    }
    script = """for(let k=0;k<100&&!page.document.querySelector(".search-summary, #search-results p")
        ?.textContent.includes("found");k++)await pause(50);await pause(300);
        return [...page.document.querySelectorAll("#search-results li a")].map(a=>a.getAttribute("href"))"""
    pages = [f"search.html?q={words.replace(' ', '+')}" for words in wanted]
    looked, _, _ = look(SITE, pages, script, 390, tmp_path / "profile")
    for (words, page), found in zip(wanted.items(), looked, strict=True):
        assert any(link.split("#")[0] == page for link in found[:10]), (words, found[:10])
