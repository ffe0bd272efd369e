"""Reads what the plugin keeps of claims on a node: journal, CDI specs, records of sharing; writes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from driver.kube.decode import decode_json
from gpuctl.doctor.inside.seen import SharingSeen, SpecSeen
from gpuctl.doctor.outside.seen import Unread
from kubeletplugin.claims.journal.entry import Entry, MalformedEntry, decode
from kubeletplugin.claims.journal.journal import uid_of_entry
from kubeletplugin.kubelet.wire.names import claim_of_cdi_spec

MOST_BYTES = 1 << 24


def read_journal(folder: Path) -> dict[str, Entry | Unread] | Unread:
    """The entries by claim UID; what cannot be read is told with its reason."""
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
        except FileNotFoundError:  # it was unprepared just now
            continue
        except MalformedEntry as error:
            entries[uid] = Unread(str(error))
        except OSError as error:
            entries[uid] = Unread(str(error.strerror))
    return entries


def read_put_aside(journal: Path) -> tuple[str, ...]:
    """The names of the files that the plugin has put aside, since it could not read them."""
    files = _files(journal / "unreadable")
    return () if isinstance(files, Unread) else tuple(file.name for file in files)


def read_specs(folder: Path, is_there: Callable[[str], bool]) -> tuple[SpecSeen, ...] | Unread:
    """The CDI specs of claims in a folder that other drivers may use as well.

    ``is_there`` says whether the host has a device node at a path of its own.
    """
    files = _files(folder)
    if isinstance(files, Unread):
        return files
    named = ((file, claim_of_cdi_spec(file.name)) for file in files)
    return tuple(_spec(file, uid, is_there) for file, uid in named if uid is not None)


def read_sharing(folder: Path) -> tuple[SharingSeen, ...]:
    """The records of what was changed on GPUs so that they can be shared; none without the folder."""
    files = _files(folder)
    if isinstance(files, Unread):
        return ()
    return tuple(_record(file) for file in files if file.suffix == ".json")


def read_noted_partitions(folder: Path) -> frozenset[int]:
    """The fabric partitions that the plugin has on record, by their numbers."""
    files = _files(folder)
    names = () if isinstance(files, Unread) else (file.name for file in files)
    found = (re.fullmatch(r"partition-(\d+)\.json", name, re.ASCII) for name in names)
    return frozenset(int(match[1]) for match in found if match)


def read_bounded(file: Path) -> bytes:
    """A file's content, up to the size that any of these may have; raises OSError."""
    with file.open("rb") as stream:
        return stream.read(MOST_BYTES)


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
        return SpecSeen(uid, wrong=f"it is no CDI spec ({error})")


def _device_paths(content: dict[str, object]) -> Iterator[str]:
    """The host's paths of the device nodes that containers get."""
    devices = content.get("devices")
    for part in (content, *(devices if isinstance(devices, list) else ())):
        for node in (part.get("containerEdits") or {}).get("deviceNodes") or ():
            yield str(node.get("hostPath") or node["path"])


def _record(file: Path) -> SharingSeen:
    try:
        content = decode_json(read_bounded(file))
        return SharingSeen(file.stem, bool(content["daemon"]), str(content["boot_id"]))
    except OSError as error:
        return SharingSeen(file.stem, wrong=str(error.strerror))
    except (ValueError, KeyError, TypeError) as error:
        return SharingSeen(file.stem, wrong=f"it is no record ({error})")
