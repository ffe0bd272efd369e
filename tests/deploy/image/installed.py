"""Distributions as an installer leaves them: metadata, a list of files, licences."""

from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path


def install(
    site: Path, name: str, version: str, fields: str = "", files: Mapping[str, str] | None = None
) -> None:
    """Put a distribution without code into a folder, with these files below its metadata."""
    folder = site / f"{name}-{version}.dist-info"
    for path, text in {**(files or {}), "METADATA": f"Name: {name}\nVersion: {version}\n{fields}"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    record = [f"{folder.name}/{path},," for path in [*(files or {}), "METADATA", "RECORD"]]
    (folder / "RECORD").write_text("\n".join(record))


def found(site: Path) -> list[Distribution]:
    """The distributions of a folder, by name."""
    return sorted(distributions(path=[str(site)]), key=lambda one: one.name)


def installed(folder: Path, *named: tuple[str, str]) -> list[Distribution]:
    """Distributions of these names and versions, in a fresh folder below ``folder``."""
    for name, version in named:
        install(folder / "site", name, version)
    return found(folder / "site")
