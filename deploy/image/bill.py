"""The bill of materials of what the image adds to its base, and the licences.

The bill is CycloneDX 1.6 (ECMA-424) in JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageMetadata
from pathlib import Path
from typing import Any

HOOK = "nvidia-cdi-hook"
MEMORY_HOOK = "gpu-memory-hook"

Component = dict[str, Any]


_LICENSE_FILE = re.compile(r"(licen[cs]e|copying|notice|authors)[^/]*$|/licenses/[^/]+$", re.IGNORECASE)
_CLASSIFIER = "License :: OSI Approved :: "
_LONGEST_NAME = 60
"""Some packages give the whole text of their licence where its name belongs."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module, by its path."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Modules:
    """What ``go version -m`` says about a program: its module, the linked modules, and the version of Go."""

    main: Module
    linked: tuple[Module, ...]
    go: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program that Go built, and the modules that it was built from."""

    file: Path
    modules: Modules


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of materials. ``epoch`` is its time, in seconds since 1970.

    ``hook`` is NVIDIA's program, ``memory_hook`` is the distribution's own, with the distribution's version.
    """

    distribution: str
    components: list[Component]
    hook: Program
    memory_hook: Program
    base: str
    epoch: int

    def to_json(self) -> str:
        """The document; the same for the same content."""
        own = next(one for one in self.components if one["name"] == self.distribution)
        libraries = [one for one in self.components if one is not own]
        linked = {
            program.file.name: [*map(_module, program.modules.linked), _standard_library(program.modules)]
            for program in (self.hook, self.memory_hook)
        }
        main = self.hook.modules.main
        hook = _program(self.hook, main.version, f"pkg:golang/{main.name}@{main.version}#cmd/{HOOK}")
        name, version = self.memory_hook.file.name, own["version"]
        memory = _program(self.memory_hook, version, f"pkg:generic/{self.distribution}@{version}#{name}")
        # Both programs may link the same module, and a reference must be unique in the document.
        every = {one["bom-ref"]: one for modules in linked.values() for one in modules}
        document = {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "timestamp": datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "component": {**own, "type": "application"},
                "properties": [{"name": "gpu-dra:base-image", "value": self.base}],
            },
            "components": [*libraries, hook, memory, *every.values()],
            "dependencies": [
                {"ref": own["bom-ref"], "dependsOn": _references([*libraries, hook, memory])},
                {"ref": hook["bom-ref"], "dependsOn": _references(linked[self.hook.file.name])},
                {"ref": memory["bom-ref"], "dependsOn": _references(linked[name])},
            ],
        }
        return json.dumps(document, indent=1) + "\n"


def go_modules(printed: str) -> Modules:
    """Read what ``go version -m FILE`` prints."""
    first, *rest = printed.splitlines()
    rows = [line.split() for line in rest]
    [main] = [Module(row[1], row[2]) for row in rows if row[0] == "mod"]
    linked = tuple(Module(row[1], row[2]) for row in rows if row[0] == "dep")
    return Modules(main, linked, first.split()[-1])


def archive_digests(report: Path) -> dict[str, str]:
    """The SHA-256 of each wheel that pip installed, by the name of its distribution, from pip's report."""
    return {
        one["metadata"]["name"]: one["download_info"]["archive_info"]["hashes"]["sha256"]
        for one in json.loads(report.read_text())["install"]
    }


def python_components(
    found: Iterable[Distribution], digests: Mapping[str, str], licenses: Mapping[str, str]
) -> list[Component]:
    """The installed distributions, with the digest of the wheel and the licence if they are known."""
    components = []
    for one in found:
        component = _component("library", one.name, one.version, "pypi")
        if one.name in licenses:
            component["licenses"] = [{"license": {"name": licenses[one.name]}}]
        if one.name in digests:
            component["hashes"] = [{"alg": "SHA-256", "content": digests[one.name]}]
        components.append(component)
    return components


def _program(program: Program, version: str, purl: str) -> Component:
    """A program by its package URL, with its digest; both programs are under this project's licence."""
    component = _component("application", program.file.name, version.removeprefix("v"), None)
    component["purl"] = component["bom-ref"] = purl
    component["licenses"] = [{"license": {"name": "Apache-2.0"}}]
    digest = hashlib.sha256(program.file.read_bytes()).hexdigest()
    component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return component


def _standard_library(modules: Modules) -> Component:
    return _component("library", "std", modules.go.removeprefix("go"), "golang")


def _module(module: Module) -> Component:
    return _component("library", module.name, module.version, "golang")


def _component(kind: str, name: str, version: str, package_type: str | None) -> Component:
    """A component; if it is a package, its package URL is also its reference."""
    component: Component = {"type": kind, "name": name, "version": version}
    if package_type is not None:
        # The specification of package URLs normalises names of PyPI like this.
        purl_name = name.lower().replace("_", "-") if package_type == "pypi" else name
        component["purl"] = component["bom-ref"] = f"pkg:{package_type}/{purl_name}@{version}"
    return component


def _references(components: Iterable[Component]) -> list[str]:
    return [one["bom-ref"] for one in components]


def gather_licenses(found: Iterable[Distribution], of_modules: Path, into: Path) -> dict[str, str]:
    """Copy the licence texts of Python distributions and of Go modules below ``into``.

    Returns the name of each distribution's licence, by distribution; one that names none is left out.
    """
    shutil.copytree(of_modules, into / "go")
    named = {}
    for one in found:
        license_name = license_of(one)
        if license_name is not None:
            named[one.name] = license_name
        for file in one.files or ():
            text = Path(str(file.locate()))
            if ".dist-info/" in str(file) and _LICENSE_FILE.search(str(file)) and text.is_file():
                target = into / "python" / one.name / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(text, target)
    return named


def license_of(distribution: Distribution) -> str | None:
    """The licence that a distribution names: as an expression (PEP 639), in words, or by its classifiers."""
    metadata = distribution.metadata
    for value in (*_all(metadata, "License-Expression"), *_all(metadata, "License")):
        if value and "\n" not in value and len(value) <= _LONGEST_NAME:
            return value
    classifiers = _all(metadata, "Classifier")
    approved = [line.removeprefix(_CLASSIFIER) for line in classifiers if line.startswith(_CLASSIFIER)]
    return ", ".join(approved) or None


def _all(metadata: PackageMetadata, field: str) -> list[str]:
    return [str(value).strip() for value in metadata.get_all(field) or ()]
