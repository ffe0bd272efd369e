"""Reads DeviceClasses from YAML files: those that a user names, or those that the project ships."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from envtest.client.shipped import PACKAGE_ROOT

SHIPPED = PACKAGE_ROOT / "deviceclasses"


def load_classes(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The DeviceClasses in these files, or the shipped ones when none is named. Raises ConfigError."""
    chosen = list(files) or sorted(SHIPPED.glob("*.yaml"))
    if not chosen:
        raise ConfigError(f"there are no device classes in {SHIPPED}", "name files with --classes")
    found = []
    for path in chosen:
        try:
            documents = list(yaml.safe_load_all(path.read_bytes()))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}", "check --classes") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is no YAML: {error}", "check --classes") from error
        found += [one for one in documents if isinstance(one, dict) and one.get("kind") == "DeviceClass"]
    return found
