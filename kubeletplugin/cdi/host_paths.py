"""Translates paths of this process into those of the host, which the container runtime sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where the container runtime, which runs on the host, finds what this process sees below a root."""

    seen: Path
    on_host: Path

    def of(self, path: str) -> str:
        """The host's path of an absolute path below ``seen``; any other path is the same on the host."""
        seen, on_host = str(self.seen).rstrip("/"), str(self.on_host).rstrip("/")
        if seen == on_host or not path.startswith(f"{seen}/"):
            return path
        return on_host + path[len(seen) :]

    def below_root(self, path: str) -> str:
        """The host's path of the file that lies at ``path`` below ``seen``."""
        return str(self.on_host).rstrip("/") + path
