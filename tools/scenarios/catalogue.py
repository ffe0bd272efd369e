"""Finds the scenarios: folders of ``deploy/scenarios``, and pages of ``docs`` that name one to run on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.description import Description, read_description
from tools.scenarios.page import FRONT, Page, ScenarioWrong, front_of, read_page

DESCRIPTION, README = "scenario.yaml", "README.md"
FRONT_KEY = "scenario"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A page to run. ``folder`` has the description of its cluster, and the files that the page is about."""

    name: str
    folder: Path
    description: Description
    page: Page

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of ``deploy/scenarios``, not a page of the documentation."""
        return self.page.file.parent == self.folder


def scenario_names(root: Path = PACKAGE_ROOT) -> list[str]:
    """The names of all scenarios of a checkout, those of folders first."""
    return list(_files(root))


def scenario(name: str, root: Path = PACKAGE_ROOT) -> Scenario:
    """Read the scenario with a name.

    Raises:
        ScenarioWrong: there is no such scenario, or it cannot be used.
    """
    files = _files(root)
    if name not in files:
        raise ScenarioWrong(f"there is no scenario {name!r}", f"name one of {', '.join(files)}")
    file = files[name]
    if file.name == README:
        return Scenario(name, file.parent, read_description(file.with_name(DESCRIPTION)), read_page(file))
    page = read_page(file)
    description = root / str(page.front[FRONT_KEY])
    return Scenario(name, description.parent, read_description(description), page)


def _files(root: Path) -> dict[str, Path]:
    """Name of the scenario -> file of its page."""
    described = sorted((root / "deploy" / "scenarios").glob(f"*/{DESCRIPTION}"))
    pages = [file for file in sorted((root / "docs").glob("*.md")) if _is_run(file)]
    return {
        **{file.parent.name: file.with_name(README) for file in described},
        **{f"docs/{file.stem}": file for file in pages},
    }


def _is_run(file: Path) -> bool:
    """Whether a page of the documentation names a scenario in its front matter."""
    text = file.read_text()
    return text.startswith(FRONT) and FRONT_KEY in front_of(file, text)
