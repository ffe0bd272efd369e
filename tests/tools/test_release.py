"""A release has one version everywhere, and its notes are those of the changelog."""

import re
import tarfile
from pathlib import Path

import pytest

from tools.release import ReleaseRefused, build_packages, check_versions, release_notes

CHANGELOG = """\
# Changelog

## 0.2.0 (2027-01-01)

Second.

## 0.1.0

First.
"""


def test_the_notes_of_a_release_are_its_section_of_the_changelog_which_has_to_be_there() -> None:
    assert [release_notes(CHANGELOG, one) for one in ("0.2.0", "0.1.0")] == ["Second.\n", "First.\n"]
    for missing in ("0.3.0", "0.1", ""):
        with pytest.raises(ReleaseRefused, match=re.escape(f"no section '## {missing}'")):
            release_notes(CHANGELOG, missing)


def test_a_version_that_the_checkout_does_not_have_is_refused_with_what_to_change() -> None:
    chart = {"version": "0.2.0", "appVersion": "0.1.0"}

    with pytest.raises(
        ReleaseRefused, match=r"^appVersion in deploy/chart/Chart.yaml is 0.1.0: set it to 0.2.0"
    ):
        check_versions("0.2.0", "0.2.0", chart)

    check_versions("0.1.0", "0.1.0", {"version": "0.1.0", "appVersion": "0.1.0"})


def test_the_source_archive_has_what_a_build_needs_and_nothing_that_was_built(tmp_path: Path) -> None:
    build_packages(tmp_path)

    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "deploy/chart/Chart.yaml"} <= names
    assert [name for name in names if name.startswith((".venv", "dist", "site"))] == []
    assert len(list(tmp_path.glob("*.whl"))) == 1
