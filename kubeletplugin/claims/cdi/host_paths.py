"""Translates paths of this process into those of the host, which the container runtime sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_SLASH = Path("/")


@dataclass(frozen=True, slots=True)
class HostPaths:
    """Where the container runtime, which runs on the host, finds what this process sees below a root.

    ``host_root`` is where this process sees the root of the host, None where it was not told.
    """

    seen: Path
    on_host: Path
    host_root: Path | None = None

    def of(self, path: str) -> str:
        """The host's path of one below ``seen`` or ``host_root``; any other is the same on the host."""
        for here, there in ((self.seen, self.on_host), (self.host_root or _SLASH, _SLASH)):
            seen, on_host = str(here).rstrip("/"), str(there).rstrip("/")
            if seen != on_host and path.startswith(f"{seen}/"):
                return on_host + path[len(seen) :]
        return path

    def below_root(self, path: str) -> str:
        """The host's path of the file that lies at ``path`` below ``seen``."""
        return str(self.on_host).rstrip("/") + path

    @property
    def seen_host(self) -> Path | None:
        """Where this process sees the host's own files, None where it does not."""
        return self.seen if self.on_host == _SLASH else self.host_root
