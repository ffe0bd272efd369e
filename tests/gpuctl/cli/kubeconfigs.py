"""Kubeconfigs for tests, with as many contexts as wanted."""

import json
from pathlib import Path
from typing import Any

BEARER = "t"


def kubeconfig(path: Path, server: str = "https://x", **contexts: str | None) -> Path:
    """A kubeconfig with these contexts and their namespaces; the first is the current one."""
    listed = [
        {"name": name, "context": {"cluster": "k", "user": "u", **({"namespace": place} if place else {})}}
        for name, place in contexts.items()
    ]
    content: dict[str, Any] = {
        "current-context": next(iter(contexts), ""),
        "contexts": listed,
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": BEARER}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
