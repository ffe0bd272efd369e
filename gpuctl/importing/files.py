"""Reads the files of ``gpuctl import``: YAML, alone, in a ConfigMap or in the values of a chart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from driver.errors import ConfigError
from driver.policy.strict_yaml import load_strictly, load_wrapped
from gpuctl.cli.fields import wrong_fields

Format = Literal["mig-parted", "device-plugin"]


@dataclass(frozen=True, slots=True)
class Imported:
    """One configuration as the YAML of a node configuration; ``lost`` says what has no equivalent."""

    name: str
    text: str
    lost: tuple[str, ...]


@cache
def schema_of(format_: Format) -> dict[str, Any]:
    """The JSON schema of a format, with keywords of our own that its file explains."""
    found: dict[str, Any] = yaml.safe_load(
        Path(__file__).with_name("formats").joinpath(f"{format_}.yaml").read_text()
    )
    return found


def read_wrapped(path: Path, what: str, *places: str) -> tuple[str, Any]:
    """The YAML document of a file and its path in it, as ``load_wrapped`` gives them; raises ConfigError."""
    try:
        return load_wrapped(path.read_bytes(), str(path), *places, what=what)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "check its name") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}", "correct it") from error


def read_text(text: str, place: str, errors: list[str]) -> Any:
    """The YAML document in the text at a place of a file; None, and an error, if it is none."""
    try:
        return load_strictly(text)
    except yaml.YAMLError as error:
        errors.append(f"{place}: is not YAML: {error}")
        return None


def fields_are_right(format_: Format, document: Any, place: str, errors: list[str]) -> bool:
    """Whether a document at a place of a file is as the schema says; adds what is not to the errors."""
    wrong = wrong_fields(schema_of(format_), document)
    errors += [f"{place}.{one}" if place else one for one in wrong]
    return not wrong


def refuse(path: Path, what: str, errors: list[str]) -> None:
    """Raise ConfigError with all errors in a file, if there are any."""
    if errors:
        raise ConfigError(
            f"{path} is not a {what}: {'; '.join(errors)}",
            "correct it, or leave only the configuration in it, which begins with version: v1",
        )
