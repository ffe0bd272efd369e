"""Reads kubeconfigs like kubectl: several files are merged, and one of the contexts is chosen.

The rules are those of ``clientcmd`` in client-go. Of several entries with the same name, and of several
``current-context``, the first counts. A relative path in a file starts at the folder of that file. If there
are several files, some may be missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError

_KINDS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The files of a kubeconfig in their order. ``context`` is the chosen one, None for the current one."""

    files: tuple[Path, ...]
    context: str | None = None

    def __str__(self) -> str:
        return os.pathsep.join(map(str, self.files))

    def read(self) -> Any:
        """The content, merged, with absolute paths, and the chosen context as ``current-context``.

        Content that is not a kubeconfig is returned unchanged. Raises ConfigError for files that cannot be
        read, and for a context that does not exist.
        """
        documents = [(file, _document(file)) for file in self.files if self._is_needed(file)]
        if not documents:
            raise ConfigError(f"the kubeconfig {self} does not exist", "check $KUBECONFIG")
        if any(not isinstance(document, dict) for _, document in documents):
            return next(document for _, document in documents if not isinstance(document, dict))
        merged: dict[str, Any] = {"current-context": _current(documents)}
        for kind in _KINDS:
            merged[kind] = _merged(documents, kind)
        if self.context is not None:
            self._choose(merged)
        return merged

    def namespace(self) -> str | None:
        """The namespace of the chosen context, None if it has none; raises the same errors as ``read``."""
        content = self.read()
        entries = content["contexts"] if isinstance(content, dict) else ()
        for entry in entries:
            if entry.get("name") == content["current-context"]:
                return str((entry.get("context") or {}).get("namespace") or "") or None
        return None

    def _is_needed(self, file: Path) -> bool:
        # A single file was named by the user and must exist, several come from $KUBECONFIG.
        return len(self.files) == 1 or file.exists()

    def _choose(self, merged: dict[str, Any]) -> None:
        names = [str(entry.get("name")) for entry in merged["contexts"]]
        if self.context not in names:
            raise ConfigError(
                f"the kubeconfig {self} has no context {self.context!r}",
                f"it has {', '.join(names) or 'none'}",
            )
        merged["current-context"] = self.context


def _document(file: Path) -> Any:
    try:
        # JSON is YAML as well, so both forms are read.
        return yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read the kubeconfig {file}: {error.strerror}", "check --kubeconfig and $KUBECONFIG"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"the kubeconfig {file} is not YAML", "check --kubeconfig and $KUBECONFIG"
        ) from error


def _current(documents: list[tuple[Path, dict[str, Any]]]) -> Any:
    return next((named for _, one in documents if (named := one.get("current-context"))), None)


def _merged(documents: list[tuple[Path, dict[str, Any]]], kind: str) -> list[Any]:
    """The entries of all files, the first of each name."""
    found: dict[str, Any] = {}
    for file, document in documents:
        for name, entry in _entries(file, document, kind):
            # The first of each name counts, also if a later file has more.
            found.setdefault(name, entry)
    return list(found.values())


def _entries(file: Path, document: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    listed = document.get(kind) or []
    if not isinstance(listed, list) or not all(isinstance(one, dict) and "name" in one for one in listed):
        raise ConfigError(f"{kind} of the kubeconfig {file} is not a list of named entries", "correct it")
    for one in listed:
        value = one.get(_KINDS[kind])
        yield str(one["name"]), {**one, _KINDS[kind]: _with_paths(value, kind, file.absolute().parent)}


def _with_paths(value: Any, kind: str, folder: Path) -> Any:
    """The entry with absolute paths; other values stay as they are."""
    if not isinstance(value, dict):
        return value
    resolved = {
        key: str(folder / held) if key in _PATHS[kind] and isinstance(held, str) and held else held
        for key, held in value.items()
    }
    plugin = resolved.get("exec")
    # A bare name is searched on the PATH, anything else is a path (GetAuthInfoFileReferences of clientcmd).
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
        resolved["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return resolved
