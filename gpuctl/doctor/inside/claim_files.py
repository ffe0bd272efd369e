"""Reads the plugin's files about claims on a node: journal, CDI specs, records of sharing, memory limits.

Also the hooks and sockets by which memory limits are set. Nothing is written.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from driver.errors import NvmlError
from driver.kube.decode import decode_json
from driver.nvml.memory_limits import Cgroup, MemoryLimits
from gpuctl.cli.unread import Unread
from gpuctl.doctor.inside.seen import HookSeen, HookSocketsSeen, LimitSeen, SharingSeen, SpecSeen
from kubeletplugin.claims.journal.entry import Entry, MalformedEntry, decode
from kubeletplugin.claims.journal.journal import uid_of_entry
from kubeletplugin.devices.host.driver_files import HOOK as DRIVER_HOOK
from kubeletplugin.kubelet.wire.names import claim_of_cdi_spec, hook_folder_key

_MOST_BYTES = 1 << 24

HOOK = "gpu-memory-hook"
_IMAGE_HOOK = Path("/usr/local/lib/gpu-dra") / HOOK
"""The program in the driver's image, of which the plugin puts a copy on the host."""

_CGROUPS = "/sys/fs/cgroup"
"""Where control groups lie for NVML, and in the ledger; this process may see them elsewhere."""

_PRIVATE_FOLDER, _PRIVATE_SOCKET = 0o700, 0o600

AskLimits = Callable[[str, str], MemoryLimits | None]
"""The limits of a GPU, by its address, for a control group; None for no limits. Raises NvmlError."""


def read_journal(folder: Path) -> dict[str, Entry | Unread] | Unread:
    """The entries by claim UID; for an entry that cannot be read, the reason."""
    entries: dict[str, Entry | Unread] = {}
    files = _files(folder)
    if isinstance(files, Unread):
        return files
    for file in files:
        uid = uid_of_entry(file.name)
        if uid is None:
            continue
        try:
            entries[uid] = decode(read_bounded(file))
        except FileNotFoundError:  # the plugin removed it meanwhile: the claim was unprepared
            continue
        except MalformedEntry as error:
            entries[uid] = Unread(str(error))
        except OSError as error:
            entries[uid] = Unread(str(error.strerror))
    return entries


def read_put_aside(journal: Path) -> tuple[str, ...]:
    """The names of the files that the plugin put aside because it could not read them."""
    files = _files(journal / "unreadable")
    return () if isinstance(files, Unread) else tuple(file.name for file in files)


def read_specs(folder: Path, is_there: Callable[[str], bool]) -> tuple[SpecSeen, ...] | Unread:
    """The CDI specs of this driver's claims; other drivers may keep theirs in the same folder.

    ``is_there`` is asked whether the host has a device node at a path of its own.
    """
    files = _files(folder)
    if isinstance(files, Unread):
        return files
    named = ((file, claim_of_cdi_spec(file.name)) for file in files)
    return tuple(_spec(file, uid, is_there) for file, uid in named if uid is not None)


def read_sharing(folder: Path) -> tuple[SharingSeen, ...]:
    """The records of GPUs that were changed in order to share them; none without the folder."""
    return tuple(map(_record, _json_files(folder)))


def read_noted_partitions(folder: Path) -> frozenset[int]:
    """The numbers of the fabric partitions in the plugin's records."""
    found = (re.fullmatch(r"partition-(\d+)\.json", file.name, re.ASCII) for file in _json_files(folder))
    return frozenset(int(match[1]) for match in found if match)


def read_bounded(file: Path) -> bytes:
    """A file's content, up to the size that any of these may have; raises OSError."""
    with file.open("rb") as stream:
        return stream.read(_MOST_BYTES)


def _files(folder: Path) -> list[Path] | Unread:
    """The files in a folder, sorted."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except FileNotFoundError:
        return Unread(f"there is no {folder}")
    except OSError as error:
        return Unread(f"{folder} cannot be read: {error.strerror}")


def _spec(file: Path, uid: str, is_there: Callable[[str], bool]) -> SpecSeen:
    try:
        content = decode_json(read_bounded(file))
        names = tuple(str(device["name"]) for device in content["devices"])
        missing = sorted(path for path in set(_device_paths(content)) if not is_there(path))
        return SpecSeen(uid, names, tuple(missing))
    except OSError as error:
        return SpecSeen(uid, wrong=str(error.strerror))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return SpecSeen(uid, wrong=f"it is not a CDI spec ({error})")


def _device_paths(content: dict[str, object]) -> Iterator[str]:
    """The host's paths of the device nodes that containers get."""
    devices = content.get("devices")
    # Edits lie at the top of a spec, for all of its devices, and in each device.
    for part in (content, *(devices if isinstance(devices, list) else ())):
        for node in (part.get("containerEdits") or {}).get("deviceNodes") or ():
            # Without hostPath the node has the same path on the host as in the container.
            yield str(node.get("hostPath") or node["path"])


def _record(file: Path) -> SharingSeen:
    try:
        content = decode_json(read_bounded(file))
        return SharingSeen(file.stem, bool(content["daemon"]))
    except OSError as error:
        return SharingSeen(file.stem, wrong=str(error.strerror))
    except (ValueError, KeyError, TypeError) as error:
        return SharingSeen(file.stem, wrong=f"it is not a record of sharing ({error})")


def read_ledger(
    folder: Path, is_there: Callable[[Cgroup], bool], ask: AskLimits
) -> tuple[tuple[LimitSeen, ...], tuple[str, ...]]:
    """The limits of running containers, and the files that cannot be read; both empty without the folder."""
    found: list[LimitSeen] = []
    wrong: list[str] = []
    for file in _json_files(folder):
        try:
            content = decode_json(read_bounded(file))
            claim_uid, _, pci = file.stem.rpartition("_")
            found += [_limit(claim_uid, pci, one, ask) for one in _living(content["parts"], is_there)]
        except FileNotFoundError:  # the plugin removed it meanwhile: the claim has ended
            continue
        except OSError as error:
            wrong.append(f"{file.name}: {error.strerror}")
        except (ValueError, KeyError, TypeError) as error:
            wrong.append(f"{file.name}: it is not a ledger ({error})")
    return tuple(found), tuple(wrong)


def _living(parts: Iterable[Any], is_there: Callable[[Cgroup], bool]) -> Iterator[Any]:
    for one in parts:
        if is_there(Cgroup(str(one["cgroup"]["path"]), int(one["cgroup"]["inode"]))):
            yield one


def _limit(claim_uid: str, pci: str, part: Any, ask: AskLimits) -> LimitSeen:
    name = part["name"]
    words = "/".join(str(name[word]) for word in ("namespace", "pod", "container") if name[word])
    in_nvml: MemoryLimits | Unread | None
    try:
        in_nvml = ask(pci, str(part["cgroup"]["path"]))
    except NvmlError as error:
        in_nvml = Unread(error.what)
    return LimitSeen(claim_uid, pci, words or str(part["container_id"]), int(part["hard_bytes"]), in_nvml)


def is_group(root: Path, group: Cgroup) -> bool:
    """Whether a control group still exists; the node's groups lie below ``root``."""
    try:
        # Another group may have the path by now; its folder has another inode.
        folder = root / PurePosixPath(group.path).relative_to(_CGROUPS)
        return folder.stat().st_ino == group.inode
    except (OSError, ValueError):
        return False


def named_hooks(cdi_dir: Path) -> set[str]:
    """The paths of gpu-memory-hook in CDI specs of claims, as the host has them."""
    found: set[str] = set()
    for file in _json_files(cdi_dir):
        if claim_of_cdi_spec(file.name) is not None:
            try:
                found |= set(_hook_paths(decode_json(read_bounded(file))))
            except (OSError, ValueError, TypeError, AttributeError):
                continue  # the check of CDI specs reports it
    return found


def _hook_paths(spec: Any) -> Iterator[str]:
    for part in (spec, *(spec.get("devices") or ())):
        for hook in (part.get("containerEdits") or {}).get("hooks") or ():
            path = str(hook.get("path") or "")
            if path.rpartition("/")[2] == HOOK:
                yield path


def hook_seen(path: str, seen: Path, of_image: Path = _IMAGE_HOOK) -> HookSeen:
    """The hook that the host has at ``path``, which this process sees at ``seen``."""
    try:
        status = seen.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o111 != 0o111:
            return HookSeen(path, "it cannot be executed")
        # execve fails with EACCES on such a mount, whatever the mode of the file.
        if os.statvfs(seen).f_flag & os.ST_NOEXEC:
            return HookSeen(path, "its file system is mounted noexec")
        # The name of a copy's folder ends with the digest of its programs, so a changed file shows here.
        digest = _digest(seen)
        key = hook_folder_key([_digest(one) for one in _programs(seen.parent)])
    except FileNotFoundError:
        return HookSeen(path, "it does not exist")
    except OSError as error:
        return HookSeen(path, f"it cannot be read: {error.strerror}")
    if not seen.parent.name.endswith(f"-{key}"):
        return HookSeen(path, "its content does not match the name of its folder")
    try:
        return HookSeen(path, is_own=_digest(of_image) == digest)
    except OSError:
        return HookSeen(path)


def _programs(folder: Path) -> list[Path]:
    """The hooks in a folder of copies, in the order in which the folder's name counts them."""
    return [one for name in (DRIVER_HOOK, HOOK) if (one := folder / name).exists()]


def sockets_seen(folder: Path, is_answered: Callable[[Path], bool]) -> HookSocketsSeen:
    """The sockets in a folder that only root may reach."""
    try:
        sockets = sorted(path for path in folder.iterdir() if path.suffix == ".sock")
        private = ((folder, _PRIVATE_FOLDER), *((one, _PRIVATE_SOCKET) for one in sockets))
        open_to_others = [words for path, mode in private if (words := _reach(path, mode))]
        # A name with a dot before it is a socket that is not in place yet.
        answers = tuple((path.name, is_answered(path)) for path in sockets if path.name[0] != ".")
    except OSError:
        return HookSocketsSeen(str(folder), is_there=False)
    return HookSocketsSeen(str(folder), answers, tuple(open_to_others))


def _reach(path: Path, mode: int) -> str:
    """Why users other than root and this one may reach a path; empty if they may not."""
    status = path.lstat()
    if status.st_uid not in (0, os.geteuid()):
        return f"{path}: it belongs to user {status.st_uid}"
    return f"{path}: mode {status.st_mode & 0o777:04o}" if status.st_mode & 0o777 & ~mode else ""


def _json_files(folder: Path) -> list[Path]:
    """The records in a folder, sorted; none where it cannot be read."""
    files = _files(folder)
    return [] if isinstance(files, Unread) else [file for file in files if file.suffix == ".json"]


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
