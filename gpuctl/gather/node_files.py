"""Gathers what the driver has on a node: journal, CDI specs, records of sharing, ledger, flags, metrics."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from driver.process.boot import boot_folder
from gpuctl.doctor.inside.claim_files import read_bounded
from gpuctl.doctor.inside.places import Places, is_plugin
from gpuctl.doctor.outside.programs import flag_value
from gpuctl.gather.archive import MOST_MEMBER_BYTES, Member, as_json, safe_part, text_member
from gpuctl.gather.masking import masked_json, masked_words
from kubeletplugin.claims.journal.journal import uid_of_entry
from kubeletplugin.kubelet.wire.names import claim_of_cdi_spec, is_safe_uid

_MOST_FILES = 1000
_METRICS_SECONDS = 3.0


def node_members(places: Places, command_lines: Iterable[Sequence[str]]) -> Iterator[Member]:
    """The driver's files on this node, and the command lines and metrics of its plugins."""
    boot = boot_folder(places.data_dir)
    yield from _files(boot / "journal", "journal", lambda name: uid_of_entry(name) is not None)
    yield from _files(boot / "journal" / "unreadable", "journal/unreadable", lambda _name: True)
    yield from _files(boot / "sharing", "sharing", lambda name: name.endswith(".json"))
    yield from _files(boot / "memory", "memory", _is_of_ledger)
    yield from _files(places.cdi_dir, "cdi", lambda name: claim_of_cdi_spec(name) is not None)
    for folder in _folders(places.mps_dir):
        yield from _files(folder, f"mps/{safe_part(folder.name)}", lambda name: name == "daemon.json")
    plugins = [list(line) for line in command_lines if is_plugin(line)]
    yield Member("command-lines.json", as_json([masked_words(line) for line in plugins]))
    for number, line in enumerate(plugins):
        address = metrics_address(line)
        if address is not None:
            yield text_member(f"metrics-{number}.txt", _read_metrics(*address))


def _files(folder: Path, place: str, is_ours: Callable[[str], bool]) -> Iterator[Member]:
    """The files of a folder that are the driver's, masked."""
    try:
        # A link could lead to any file of the node, and this may run as root.
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    except OSError:  # without the folder nothing was prepared, or nothing shared; the doctor says which
        return
    for file in [one for one in files if is_ours(one.name)][:_MOST_FILES]:
        name = f"{place}/{safe_part(file.name)}"
        try:
            yield _masked_file(name, read_bounded(file))
        except OSError as error:
            yield Member(f"{name}.not-read.txt", f"{error.strerror}\n".encode())


def _is_of_ledger(name: str) -> bool:
    """Whether a file of the ledger of memory limits has this name: ``CLAIM-UID_GPU.json``."""
    claim_uid, _, _ = name.removesuffix(".json").rpartition("_")
    return name.endswith(".json") and is_safe_uid(claim_uid)


def _masked_file(name: str, data: bytes) -> Member:
    """A file without values that may be secret, as JSON if it is JSON, else as text."""
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError):
        return text_member(name, data.decode(errors="replace"))
    return Member(name, as_json(masked_json(content)))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def metrics_address(words: Sequence[str]) -> tuple[str, int] | None:
    """The address of the metrics of a process with this command line, for a client on the same machine."""
    host, _, port = (flag_value(words, "--metrics-addr") or "").rpartition(":")
    if not port.isdigit():
        return None
    host = host.strip("[]")
    # A process that listens on all addresses is reached on the loopback one.
    return ("127.0.0.1" if host in ("", "0.0.0.0") else "::1" if host == "::" else host), int(port)  # noqa: S104 - it is read, not bound


def _read_metrics(host: str, port: int) -> str:
    """The metrics at an address, or why there are none."""
    connection = http.client.HTTPConnection(host, port, timeout=_METRICS_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(MOST_MEMBER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"not read: {error}\n"
    finally:
        connection.close()
