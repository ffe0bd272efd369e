"""The site of the documentation, opened from the disk in a browser: search works, and no host is asked."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tools.docs.site.places import ROOT
from tools.testbed.chromium import Tab, chromium

pytestmark = pytest.mark.timeout(300)  # the first test waits for the whole site

TYPE = """
    const field = document.querySelector("input.md-search__input");
    field.focus();
    field.value = "memoryIsolation";
    field.dispatchEvent(new Event("input", {bubbles: true}));
    field.dispatchEvent(new Event("keyup", {bubbles: true}));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    config = ROOT / "tools/docs/site/mkdocs.yml"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(config),
        "--site-dir",
        str(folder),
    ]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return folder


@pytest.fixture
def tab() -> Iterator[Tab]:
    """A browser's tab in a window of a usual size."""
    with chromium() as opened:
        opened.size(1280, 900)
        yield opened


def test_search_works_on_a_page_that_was_opened_from_the_disk(site: Path, tab: Tab) -> None:
    tab.open((site / "scenarios" / "tenants.html").as_uri())
    tab.evaluate(TYPE)
    tab.wait_text("Isolation between pods", ".md-search-result")
    assert tab.complaints() == []
    assert [url for url in tab.requested() if not url.startswith(("file:", "data:"))] == []


def test_whoever_prefers_dark_pages_gets_them(site: Path, tab: Tab) -> None:
    tab.media("dark")
    tab.open((site / "index.html").as_uri())
    tab.wait_text("Use GPUs")
    assert tab.evaluate("document.body.dataset.mdColorScheme") == "slate"
    assert tab.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "tutorial", "sharing"])
def test_words_stand_out_from_their_ground(site: Path, tab: Tab, name: str, scheme: str) -> None:
    tab.media(scheme)
    tab.open((site / f"{name}.html").as_uri())
    tab.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text() + "; 1")

    assert tab.evaluate(CONTRAST) == []


CONTRAST = """axe.run({runOnly: ["color-contrast"]}).then((found) => found.violations.flatMap(
  (one) => one.nodes.map((node) => node.html)
))"""
