"""The site builds without a warning, holds every page, and says what the Markdown says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.tools.docs.site.rendered import article, seen
from tools.docs.site.links import links
from tools.docs.site.places import DOCS, ROOT, adopted

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
SOURCES = {f"docs/{page.name}": page.name for page in sorted(DOCS.glob("*.md"))} | adopted()
pytestmark = pytest.mark.timeout(300)  # the first test waits for the whole site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    command += ["--config-file", str(ROOT / "tools/docs/site/mkdocs.yml")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_map_leads_to_every_page_of_the_documentation() -> None:
    led_to = {link.path for link in links((DOCS / "index.md").read_text())}
    assert {page.name for page in DOCS.glob("*.md")} - led_to - {"index.md"} == set()


@pytest.mark.parametrize("source", SOURCES)
def test_a_page_of_the_site_shows_what_the_file_says(site: Path, source: str) -> None:
    page = (site / SOURCES[source]).with_suffix(".html").read_text()
    text = FRONT_MATTER.sub("", (ROOT / source).read_text())
    assert seen(article(page)) == seen(GITHUB.render(text))


def test_every_page_of_a_file_shows_the_whole_file(site: Path) -> None:
    shown = {
        page: ROOT / page.relative_to(site / "files").with_suffix("")
        for page in (site / "files").rglob("*.html")
    }
    files = {page: file for page, file in shown.items() if file.is_file()}
    assert len(files) > 30
    wrong = [
        file
        for page, file in files.items()
        if "".join(file.read_text().split()) not in seen(article(page.read_text())).words
    ]
    assert wrong == []
