"""Every page and anchor of the documentation that code, chart, rules or messages name exists."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tools.docs.site.test_repository_links import anchors
from tools.docs.site.places import DOCS, ROOT

FOLDERS = (
    *("proto", "driver", "controller", "kubeletplugin", "gpuctl", "fakegpu", "kubernetes_rules", "envtest"),
    *("deploy", "deviceclasses", "tools", ".ci", ".github"),
)
SUFFIXES = frozenset(
    {".py", ".yaml", ".yml", ".json", ".tpl", ".txt", ".md", ".proto", ".html", ".go", ".sh", ""}
)
_NAMED = re.compile(r"\bdocs/(?P<page>[A-Za-z-]+\.md)(?:#(?P<anchor>[A-Za-z0-9_-]+))?")


def texts() -> Iterator[tuple[Path, str]]:
    """All files that people edit, without the documentation itself and the tests."""
    files = [
        ROOT / name for name in ("Makefile", "pyproject.toml", "README.md", "CONTRIBUTING.md", "SECURITY.md")
    ]
    for folder in FOLDERS:
        files += [
            path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file()
        ]
    for file in files:
        if "__pycache__" not in file.parts:
            yield file, file.read_text(errors="replace")


def missing(text: str) -> list[str]:
    """The pages and anchors that a text names and that do not exist."""
    return sorted({one[0] for one in _NAMED.finditer(text) if not exists(one["page"], one["anchor"])})


@cache
def exists(page: str, anchor: str | None) -> bool:
    file = DOCS / page
    return file.is_file() and (anchor is None or anchor in anchors(file.read_text()))


def test_every_page_that_is_named_exists() -> None:
    wrong = [(str(file.relative_to(ROOT)), missing(text)) for file, text in texts()]

    assert [one for one in wrong if one[1]] == []


def test_alerts_lead_to_a_page_and_an_anchor() -> None:
    rules = (ROOT / "deploy" / "chart" / "monitoring" / "rules" / "alerts.yaml").read_text()

    assert len([anchor for _, anchor in _NAMED.findall(rules) if anchor]) == rules.count("- alert: ") > 20
