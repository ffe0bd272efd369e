"""Checks how a scenario is written, without a cluster: its YAML blocks and mentioned files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent

from envtest.client.shipped import PACKAGE_ROOT
from tools.scenarios.catalogue import DESCRIPTION, README, Scenario
from tools.scenarios.comparing import parts_of


def faults(scenario: Scenario) -> list[str]:
    """A sentence for each thing that is wrong with a scenario, with its file and line."""
    found = list(_unquoted(scenario))
    if not scenario.page.steps:
        found.append(f"{scenario.page.file}: it has no sh block, so nothing runs")
    if scenario.is_folder:
        found += _unmentioned(scenario)
    return found


def quotes(block: str, text: str) -> bool:
    """Whether a block is a part of a text: whole lines, with any common indentation.

    A line that is only ``…`` leaves out any number of lines.
    """
    lines, at = [line.rstrip() for line in text.splitlines()], 0
    for part in parts_of([line.rstrip() for line in block.rstrip().splitlines()]):
        while at + len(part) <= len(lines) and not _same(part, lines[at : at + len(part)]):
            at += 1
        if at + len(part) > len(lines):
            return False
        at += len(part)
    return True


def _same(block: Sequence[str], lines: Sequence[str]) -> bool:
    """Whether lines are the same, except for an indentation that all of them have."""
    return dedent("\n".join(block)) == dedent("\n".join(lines))


def _unmentioned(scenario: Scenario) -> Iterator[str]:
    for file in sorted(scenario.folder.rglob("*")):
        name = file.relative_to(scenario.folder).as_posix()
        if file.is_file() and name not in (README, DESCRIPTION) and name not in scenario.page.text:
            yield f"{scenario.page.file}: it does not mention the file {name} beside it"


def _unquoted(scenario: Scenario) -> Iterator[str]:
    """The YAML blocks of the page that are not parts of a file which people apply."""
    texts = [file.read_text() for file in _quotable(scenario)]
    for block in scenario.page.quoted:
        if not any(quotes(block.text, text) for text in texts):
            yield f"{scenario.page.file}:{block.line}: this YAML is in none of the files that it may quote"


def _quotable(scenario: Scenario) -> list[Path]:
    """The files that a page may quote: the scenario's own, its node configuration, and the DeviceClasses.

    A page of the documentation may quote any file of ``deploy``.
    """
    places = [scenario.folder, PACKAGE_ROOT / "deviceclasses"]
    if not scenario.is_folder:
        places.append(PACKAGE_ROOT / "deploy")
    return [scenario.description.config_file, *(file for place in places for file in place.rglob("*.yaml"))]
