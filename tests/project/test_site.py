"""The documentation builds as a site, strictly; its links and pictures are there, and it needs no network."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: What a browser fetches by itself, by element and attribute.
FETCHED = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("iframe", "src"),
    ("object", "data"),
}


class Page(HTMLParser):
    """The references, names and scripts of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.names, self.links, self.fetched, self.classes = path, {""}, list[str](), list[str](), set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.names.add(value or "")
            elif name == "class":
                self.classes.update((value or "").split())
            elif (tag, name) in FETCHED:
                self.fetched.append(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")

    def place(self, reference: str) -> tuple[Path, str]:
        """Return the file and the name in it that a reference of this page means."""
        parts = urlsplit(reference)
        path = self.path if not parts.path else (self.path.parent / unquote(parts.path)).resolve()
        return path, unquote(parts.fragment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # No proxy answers there: what asks for the network fails.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    environment = {**nowhere, "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def is_outside(reference: str) -> bool:
    return bool(urlsplit(reference).scheme or urlsplit(reference).netloc)


def test_every_document_is_a_page_that_the_menu_leads_to(site, pages):
    documents = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert len(documents) >= 15
    index = pages[site / "index.html"]
    reached = {index.place(link)[0] for link in index.links if not is_outside(link)}
    assert documents <= {path.relative_to(site).as_posix() for path in reached}


def test_every_link_and_picture_is_there(site, pages):
    lost, seen = [], 0
    for page in pages.values():
        if page.path.name == "404.html":  # shown at any address, so its links begin with /
            continue
        for reference in (*page.links, *page.fetched):
            if is_outside(reference):
                continue
            seen += 1
            path, name = page.place(reference)
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file() or (path in pages and name not in pages[path].names):
                lost.append(f"{page.path.relative_to(site)}: {reference}")
    assert lost == []
    assert seen > 300


def addresses(site: Path) -> Iterator[str]:
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)", sheet.read_text(encoding="utf-8")):
            if is_outside(address) and not address.startswith("data:"):
                yield f"{sheet.name}: {address}"


def test_nothing_is_fetched_from_the_network(site, pages):
    """Neither pages nor style sheets; the theme's script fetches Mermaid, and figures of a repository, if asked to."""
    fetched = [f"{page.path.name}: {x}" for page in pages.values() for x in page.fetched if is_outside(x)]
    assert fetched + list(addresses(site)) == []
    asking = {"mermaid", "md-source"}
    assert [page.path.name for page in pages.values() if page.classes & asking] == []


def test_the_interface_is_described_from_the_code(pages, site):
    names = pages[site / "api.html"].names
    assert {"palearn.make", "palearn.Model.learn_one", "palearn.tables.reading.latest_models"} <= names
