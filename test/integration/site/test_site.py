# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The built sites: links and anchors have a target, and a browser sends no request to another host."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
PASSIVE_LINKS = {"canonical", "next", "prev", "edit"}


class Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.classes: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        self.classes |= set(given.get("class", "").split())
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if LOADED.get(tag) in given:
            self.loads.add(given[LOADED[tag]])
        if tag == "link" and given.get("rel") not in PASSIVE_LINKS:
            self.loads.add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both sites, the library's below the manager's; return the folder."""
    target = tmp_path_factory.mktemp("site")
    for folder, below in ((ROOT, target), (ROOT / "controller-runtime", target / "controller-runtime")):
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(below)],
            cwd=folder,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = {str(path.relative_to(site)): Page(path) for path in site.rglob("*.html")}
    assert {"index.html", "reference/api.html", "controller-runtime/tutorial.html"} <= set(found)
    return found


def local(page: str, link: str) -> tuple[str, str] | None:
    """Return the file and the anchor that a link of ``page`` names; None for other hosts."""
    if urlsplit(link).scheme or link.startswith("//"):
        return None
    url, anchor = urldefrag(urljoin(f"/{page}", link))
    path = unquote(urlsplit(url).path).lstrip("/")
    return (f"{path}index.html" if path.endswith("/") or not path else path), unquote(anchor)


def test_links_and_their_anchors_lead_somewhere(site: Path, pages: dict[str, Page]) -> None:
    dead = set()
    for name, page in pages.items():
        if Path(name).name == "404.html":  # its links are absolute: a server decides where it is shown
            continue
        for link in page.links | page.loads:
            if (target := local(name, link)) is None:
                continue
            file, anchor = target
            if not (site / file).is_file() or (anchor and file in pages and anchor not in pages[file].ids):
                dead.add(f"{name}: {link}")
    assert dead == set()


def test_a_browser_loads_nothing_from_another_host(site: Path, pages: dict[str, Page]) -> None:
    foreign = {f"{name}: {url}" for name, page in pages.items() for url in page.loads if urlsplit(url).netloc}
    assert foreign == set()
    styles = [path.read_text() for path in site.rglob("*.css")]
    assert styles
    assert [style[:80] for style in styles if "url(http" in style or "url(//" in style] == []
    # The theme loads a script for this class from another host.
    assert [name for name, page in pages.items() if "mermaid" in page.classes] == []


@pytest.mark.parametrize("folder", ["", "controller-runtime"])
def test_the_search_has_an_index_of_every_page_and_works_without_a_server(
    folder: str, site: Path, pages: dict[str, Page]
) -> None:
    text = (site / folder / "search/search_index.json").read_text()
    found = {urldefrag(each["location"]).url for each in json.loads(text)["docs"]}
    assert found >= {"index.html", "reference/" + ("index.html" if folder else "api.html")}
    assert [name for name in found if not (site / folder / name).is_file()] == []
    assert (site / folder / "search/search_index.js").read_text() == f"var __index = {text}"
    assert "iframe-worker.js" in pages[str(Path(folder, "index.html"))].loads


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("facade", ["Manager", "Request", "new_controller_managed_by"]),
        ("client", ["client.Client", "client.LiveClient", "client.Client.subresource", "client.merge_from"]),
        ("cache", ["cache.Options", "cache.Cache"]),
        ("webhook", ["webhook.CustomValidator", "webhook.CustomValidator.validate_create"]),
        ("testing", ["fake.FakeClient", "envtest.Environment", "envtest.eventually.eventually"]),
    ],
)
def test_the_reference_of_the_library_has_the_names_that_packages_export(
    page: str, names: list[str], pages: dict[str, Page]
) -> None:
    ids = pages[f"controller-runtime/reference/{page}.html"].ids
    assert {f"controller_runtime.{name}" for name in names} - ids == set()
