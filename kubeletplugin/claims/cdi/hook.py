"""The program nvidia-cdi-hook of NVIDIA's container toolkit: where it comes from, and which calls it knows.

A release that does not know a call may fail the container. So a hook is run once with ``--help``, and later
only gets calls that it lists there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from driver.errors import ClaimBlocked, ConfigError, NodeIncomplete
from kubeletplugin.devices.host.driver_files import DriverFiles
from kubeletplugin.devices.host.driver_programs import Program, run_program
from kubeletplugin.devices.host.library_files import Link

LINKS, CACHE = "create-symlinks", "update-ldcache"
CUDA_COMPAT = "enable-cuda-compat"
NO_NODES = "disable-device-node-modification"
PROFILE = "update-application-profile"

OLDEST_CALLS = frozenset({LINKS, CACHE})
"""The calls of every release; a hook without them cannot be used."""

_CALLS = (LINKS, CUDA_COMPAT, CACHE, NO_NODES, PROFILE)
_SECONDS = 10.0

IMAGE_HOOK = Path("/usr/local/lib/gpu-dra/nvidia-cdi-hook")
"""Its place in the image; the file beside it that ends in ``.version`` has its version."""

IMAGE_MEMORY_HOOK = IMAGE_HOOK.with_name("gpu-memory-hook")
"""The place of this driver's own hook in the image."""

COPY = "copy"
_MOST_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Hook:
    """The hook's path on the host, and the calls that it knows."""

    path: str
    calls: frozenset[str] = OLDEST_CALLS


def asked_hook(seen: Path, on_host: str) -> Hook:
    """The hook that this process sees at ``seen``, with the calls that its ``--help`` lists.

    Raises NodeIncomplete if it cannot be run, or lacks the calls of every release.
    """
    if is_noexec(seen):
        raise NodeIncomplete(
            f"{seen} cannot be run: its file system is mounted noexec",
            "mount it without noexec, or give --cdi-hook the path of one elsewhere on the host",
        )
    try:
        said = run_program(Program(seen, {"LC_ALL": "C"}), ["--help"], timeout_seconds=_SECONDS)
    except ClaimBlocked as error:  # it hangs
        raise NodeIncomplete(
            error.what, "run nvidia-cdi-hook --help on the node and see why it does not end"
        ) from error
    calls = frozenset(call for call in _CALLS if any(line.split()[0] == call for line in said.lines))
    if not calls >= OLDEST_CALLS:
        raise NodeIncomplete(
            f"{seen} is not a usable nvidia-cdi-hook; its --help says: {said.words[:200]}",
            "set --cdi-hook to the nvidia-cdi-hook of the NVIDIA container toolkit",
        )
    return Hook(on_host, calls)


def is_noexec(path: Path) -> bool:
    """Whether this process sees the file on a file system that is mounted noexec."""
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def links_call(hook: Hook, links: Sequence[Link]) -> dict[str, Any]:
    """The call that makes these links in the container."""
    return _call(hook, LINKS, *(part for link in links for part in ("--link", f"{link.target}::{link.path}")))


def driver_calls(hook: Hook, files: DriverFiles, *, has_linker_cache: bool = True) -> list[dict[str, Any]]:
    """The calls that set a container up for the driver's files, in their required order.

    ``has_linker_cache`` is whether the host has the ldconfig that writes the linker cache.
    """
    folders = [part for folder in files.library_folders for part in ("--folder", folder)]
    calls = [
        # The links come before the linker cache, which is to list them.
        links_call(hook, files.links) if files.links else None,
        _call(hook, CUDA_COMPAT, f"--host-driver-version={files.version}"),
        _call(hook, CACHE, *folders) if has_linker_cache else None,
        _call(hook, NO_NODES),
        _call(hook, PROFILE),
    ]
    return [call for call in calls if call is not None and call["args"][1] in hook.calls]


def _call(hook: Hook, name: str, *arguments: str) -> dict[str, Any]:
    return {
        "hookName": "createContainer",
        "path": hook.path,
        "args": [PurePosixPath(hook.path).name, name, *arguments],
        "env": ["NVIDIA_CTK_DEBUG=false"],
    }


@dataclass(frozen=True, slots=True)
class HookSource:
    """Where the hook comes from: a file to copy to the host, a path on the host, or else the driver root."""

    copied: Path | None = None
    on_host: str = ""

    @classmethod
    def from_flag(cls, text: str) -> HookSource:
        """``copy`` is the image's hook if it has one, ``copy:FILE`` another file; else a path on the host.

        Raises ConfigError.
        """
        if text == COPY:
            # Outside of the image, as in tests, there is no such file.
            return cls(IMAGE_HOOK if IMAGE_HOOK.is_file() else None)
        kind, _, file = text.partition(":")
        if kind == COPY and Path(file).is_absolute():
            if Path(file).is_file():
                return cls(Path(file))
            raise ConfigError(
                f"--cdi-hook: the file {file[:_MOST_SHOWN]} does not exist",
                "name an existing file after copy:",
            )
        if Path(text).is_absolute():
            return cls(on_host=text)
        raise ConfigError(
            f"--cdi-hook {text[:_MOST_SHOWN]!r} is not an absolute path",
            "give copy, copy:FILE, or the path of nvidia-cdi-hook on the host",
        )


NO_HOOK = HookSource()
"""No hook but that of the driver root, if it has one."""


def memory_hook_from_flag(given: Path | None) -> Path | None:
    """The program of the memory hook: from the flag, else from the image; None without either."""
    if given is not None:
        return given.absolute()
    return IMAGE_MEMORY_HOOK if IMAGE_MEMORY_HOOK.is_file() else None
