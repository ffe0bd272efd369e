"""Gathers what lies on a node of the driver's own: journal, specs, records, ledger, flags, metrics."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuctl.doctor.inside.claim_files import read_bounded
from gpuctl.doctor.inside.places import Places, is_plugin
from gpuctl.gather.archive import MOST_MEMBER_BYTES, Member, as_json, safe_part
from gpuctl.gather.masking import masked_json, masked_text, masked_words
from kubeletplugin.claims.journal.journal import uid_of_entry
from kubeletplugin.kubelet.wire.names import claim_of_cdi_spec, is_safe_uid

_MOST_FILES = 1000
_METRICS_SECONDS = 3.0


def node_members(places: Places, command_lines: Iterable[Sequence[str]]) -> Iterator[Member]:
    """The files of this driver on this node, and what its plugin says about itself."""
    data = places.data_dir
    yield from _files(data / "journal", "journal", lambda name: uid_of_entry(name) is not None)
    yield from _files(data / "journal" / "unreadable", "journal/unreadable", lambda _name: True)
    yield from _files(data / "sharing", "sharing", lambda name: name.endswith(".json"))
    yield from _files(data / "memory" / "claims", "memory", _is_of_ledger)
    yield from _files(places.cdi_dir, "cdi", lambda name: claim_of_cdi_spec(name) is not None)
    for folder in _folders(places.mps_dir):
        yield from _files(folder, f"mps/{safe_part(folder.name)}", lambda name: name == "daemon.json")
    plugins = [list(line) for line in command_lines if is_plugin(line)]
    yield Member("command-lines.json", as_json([masked_words(line) for line in plugins]))
    for number, line in enumerate(plugins):
        address = metrics_address(line)
        if address is not None:
            yield Member(f"metrics-{number}.txt", masked_text(_read_metrics(*address)).encode())


def _files(folder: Path, place: str, is_ours: Callable[[str], bool]) -> Iterator[Member]:
    """The files of a folder that are the driver's, masked."""
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    except OSError:  # without the folder nothing was prepared, or nothing shared; the doctor tells which
        return
    for file in [one for one in files if is_ours(one.name)][:_MOST_FILES]:
        name = f"{place}/{safe_part(file.name)}"
        try:
            yield Member(name, _masked_file(read_bounded(file)))
        except OSError as error:
            yield Member(f"{name}.not-read.txt", f"{error.strerror}\n".encode())


def _is_of_ledger(name: str) -> bool:
    """Whether a file says what containers of a claim may have of a GPU: it is named after both."""
    claim_uid, _, _ = name.removesuffix(".json").rpartition("_")
    return name.endswith(".json") and is_safe_uid(claim_uid)


def _masked_file(data: bytes) -> bytes:
    """A file of JSON with values that may be secret left out; any other as text, likewise."""
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError):
        return masked_text(data.decode(errors="replace")).encode()
    return as_json(masked_json(content))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def metrics_address(words: Sequence[str]) -> tuple[str, int] | None:
    """Where a command line says that metrics are served, as a client on the same machine reaches it."""
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag != "--metrics-addr":
            continue
        address = value if equals else "".join(words[number + 1 : number + 2])
        host, _, port = address.rpartition(":")
        if port.isdigit():
            host = host.strip("[]")
            return ("127.0.0.1" if host in ("", "0.0.0.0") else "::1" if host == "::" else host), int(port)  # noqa: S104 - it is read, not bound
    return None


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
