"""Programs that stand for nvidia-cdi-hook: each says by --help what it knows."""

from pathlib import Path

ALL = (
    "update-ldcache",
    "create-symlinks",
    "chmod",
    "enable-cuda-compat",
    "disable-device-node-modification",
    "update-application-profile",
)


def hook_program(path: Path, calls: tuple[str, ...] = ALL, version: str = "1.20.1") -> Path:
    """A hook that knows these calls, with the file beside it that says its version; returns ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"   {call}   What it does, or enable-cuda-compat does\\n" for call in calls)
    path.write_text(f"#!/bin/sh\n# {version}\nprintf 'COMMANDS:\\n{lines}'\n")
    path.chmod(0o755)
    path.with_name(f"{path.name}.version").write_text(f"{version}\n")
    return path


def memory_hook_program(path: Path, content: str = "") -> Path:
    """A program that stands for gpu-memory-hook where nothing runs it; returns ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n# {content}\nexit 1\n")
    path.chmod(0o755)
    return path
