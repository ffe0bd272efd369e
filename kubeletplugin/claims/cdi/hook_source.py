"""Reads the flags that say where the hooks come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from driver.errors import ConfigError

IMAGE_HOOK = Path("/usr/local/lib/gpu-dra/nvidia-cdi-hook")
"""Where the image has it; the file beside it with ``.version`` at its end says which version it is."""

IMAGE_MEMORY_HOOK = IMAGE_HOOK.with_name("gpu-memory-hook")
"""Where the image has the driver's own hook."""

COPY = "copy"
_MOST_SHOWN = 64


@dataclass(frozen=True, slots=True)
class HookSource:
    """The file to copy to the host, or the host's own path; neither leaves it to what the driver root has."""

    copied: Path | None = None
    on_host: str = ""

    @classmethod
    def from_flag(cls, text: str) -> HookSource:
        """``copy`` is the image's hook, if it has one, ``copy:FILE`` another; else a path of the host.

        Raises ConfigError.
        """
        if text == COPY:
            return cls(IMAGE_HOOK if IMAGE_HOOK.is_file() else None)
        kind, _, file = text.partition(":")
        if kind == COPY and Path(file).is_absolute():
            if Path(file).is_file():
                return cls(Path(file))
            raise ConfigError(
                f"--cdi-hook: there is no file {file[:_MOST_SHOWN]}", "name the one to be copied"
            )
        if Path(text).is_absolute():
            return cls(on_host=text)
        raise ConfigError(
            f"--cdi-hook {text[:_MOST_SHOWN]!r} is no absolute path",
            "give copy, copy:FILE, or the path of nvidia-cdi-hook on the host",
        )


NO_HOOK = HookSource()
"""Whoever has none is left with what the driver root has."""


def memory_hook_from_flag(given: Path | None) -> Path | None:
    """The program of the hook for memory: the one that is given, else the image's; None without either."""
    if given is not None:
        return given.absolute()
    return IMAGE_MEMORY_HOOK if IMAGE_MEMORY_HOOK.is_file() else None
