"""The functions that MkDocs calls while it builds the site (``hooks`` in tools/docs/site/mkdocs.yml).

They add the pages from outside of ``docs/``, change links to files of the repository into links to pages of
the site, and convert each page to the dialect of Markdown that MkDocs reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.docs.site.dialect import as_python_markdown
from tools.docs.site.links import Link, links, retarget
from tools.docs.site.places import DOCS, ROOT, SHOWN, adopted, entries, page_of, relative, resolve, site_path

_ALL_OF = "/*"
"""How an entry of the navigation ends that means all pages of a folder."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the folders in the navigation by their pages."""
    config.nav = list(_expanded(config.nav or []))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the Markdown of other folders, and the files and folders that pages link to."""
    sources = {path: (ROOT / path).read_text() for path in adopted()}
    for path, text in sources.items():
        files.append(File.generated(config, site_path(path), content=text))
    sources |= {page.relative_to(ROOT).as_posix(): page.read_text() for page in sorted(DOCS.rglob("*.md"))}
    for path in _linked(sources):
        files.append(File.generated(config, site_path(path), content=page_of(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs gives them by name
    """Change the links of a page to pages of the site, and convert it for Python-Markdown."""
    here = page.file.src_uri
    if here.startswith(f"{SHOWN}/"):
        return markdown
    source = _source_of(here)
    return as_python_markdown(retarget(markdown, lambda link: _target(source, here, link)))


def _target(source: str, here: str, link: Link) -> str:
    """The target in the site of a link in the file ``source``, whose page is ``here``."""
    path = resolve(source, link.path)
    if link.leaves or not link.path or not (ROOT / path).exists():
        return link.target
    anchor = f"#{link.anchor}" if link.anchor else ""
    return relative(here, site_path(path)) + anchor


def _source_of(here: str) -> str:
    return next((path for path, page in adopted().items() if page == here), f"docs/{here}")


def _linked(sources: dict[str, str]) -> list[str]:
    """The paths that get a page which shows them: linked files and folders, and all in linked folders."""
    waiting = [
        resolve(source, link.path)
        for source, text in sources.items()
        for link in links(text)
        if _is_path(link)
    ]
    found: dict[str, None] = {}
    while waiting:
        path = waiting.pop()
        if path not in found and site_path(path).startswith(f"{SHOWN}/") and (ROOT / path).exists():
            found[path] = None
            waiting += entries(path)
    return sorted(found)


def _is_path(link: Link) -> bool:
    return bool(link.path) and not link.leaves


def _expanded(entries_of_nav: Iterable[Any]) -> Iterable[Any]:
    for entry in entries_of_nav:
        if isinstance(entry, dict):
            for title, below in entry.items():
                yield {title: list(_expanded(below)) if isinstance(below, list) else below}
        elif isinstance(entry, str) and entry.endswith(_ALL_OF):
            folder = entry.removesuffix("*")
            yield from (page for page in adopted().values() if page.startswith(folder))
        else:
            yield entry
