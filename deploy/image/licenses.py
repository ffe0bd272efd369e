"""Gathers the licences of what the image adds to its base: their texts, and the names that libraries give."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageMetadata
from pathlib import Path

LICENSE_FILE = re.compile(r"(licen[cs]e|copying|notice|authors)[^/]*$|/licenses/[^/]+$", re.IGNORECASE)
CLASSIFIER = "License :: OSI Approved :: "
SHORT = 60
"""Some packages give the whole text of their licence where its name belongs."""


def gather_licenses(found: Iterable[Distribution], of_modules: Path, into: Path) -> dict[str, str]:
    """Copy the texts of Python distributions and of Go modules below ``into``.

    Returns the licence that each distribution names, by its own name; one that names none is left out.
    """
    shutil.copytree(of_modules, into / "go")
    named = {}
    for one in found:
        license_name = license_of(one)
        if license_name is not None:
            named[one.name] = license_name
        for file in one.files or ():
            text = Path(str(file.locate()))
            if ".dist-info/" in str(file) and LICENSE_FILE.search(str(file)) and text.is_file():
                target = into / "python" / one.name / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(text, target)
    return named


def license_of(distribution: Distribution) -> str | None:
    """The licence that a distribution names: as an expression (PEP 639), in words, or by its classifiers."""
    metadata = distribution.metadata
    for value in (*_all(metadata, "License-Expression"), *_all(metadata, "License")):
        if value and "\n" not in value and len(value) <= SHORT:
            return value
    classifiers = _all(metadata, "Classifier")
    approved = [line.removeprefix(CLASSIFIER) for line in classifiers if line.startswith(CLASSIFIER)]
    return ", ".join(approved) or None


def _all(metadata: PackageMetadata, field: str) -> list[str]:
    return [str(value).strip() for value in metadata.get_all(field) or ()]
