"""Reads what ``nvidia-smi -q -x`` prints: values without any I/O.

The elements are those of nvsmi_device_v11.dtd to v13, which drivers 450 to 590 print. Each driver adds some
and renames some. So every value is looked up by its path, and one that is missing is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from driver.errors import NodeIncomplete
from driver.nvml.pci_address import PciAddress

MOST_CHARACTERS = 16 * 1024 * 1024
"""How long a log may be. A GPU takes 120 kB, most of it for the clocks that it can have."""

_ROOT = "nvidia_smi_log"
_LOG = re.compile(rf"<{_ROOT}\b.*</{_ROOT}>", re.DOTALL)
# The document type of the real log names an external definition, which nobody loads.
_PROLOG = re.compile(r"<\?xml[^<>]*>|<!DOCTYPE[^<>\[]*>")
# The command line of a process, by any user: it may be no XML, and it may contain secrets.
_PROCESS_NAME = re.compile(r"<process_name>.*?</process_name>", re.DOTALL)

_UNKNOWN = frozenset(
    {
        *("", "na", "notavailable", "notsupported", "unknown", "unknownerror", "err", "error"),
        *("gpuislost", "gpurequiresreset", "requiresreset", "resetrequired", "gpunotfound", "notfound"),
        *("insufficientpermissions", "requestedfunctionalityhasbeendeprecated", "deprecated"),
        *("functionnotfound", "timeout", "notready", "drivernotloaded"),
    }
)
_UNKNOWN_STARTS = ("gpuaccessblocked", "unabletodetermine")


class SmiUnreadable(NodeIncomplete):
    """nvidia-smi printed no log."""


@dataclass(frozen=True, slots=True)
class SmiElement:
    """An element of the log: its known values by their path below it, such as ``mig_mode/current_mig``."""

    values: Mapping[str, str]

    def get(self, *paths: str) -> str | None:
        """The value at the first of these paths that has a known one."""
        return next((self.values[path] for path in paths if path in self.values), None)


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """A GPU of the log. ``migs`` are its MIG devices, None if the log does not say whether it has any."""

    pci: PciAddress
    element: SmiElement
    migs: tuple[SmiElement, ...] | None


@dataclass(frozen=True, slots=True)
class SmiLog:
    """All of a log; ``beside`` are the lines that nvidia-smi printed before and after it: warnings."""

    element: SmiElement
    gpus: tuple[SmiGpu, ...]
    beside: tuple[str, ...] = ()


def plain(words: str) -> str:
    """A word without case, blanks and punctuation, in which NVML and nvidia-smi differ."""
    return "".join(filter(str.isalnum, words.casefold()))


def is_unknown(words: str) -> bool:
    """Whether nvidia-smi says by these words that it has no value: ``N/A``, ``Requires Reset``, ``ERR!``."""
    word = plain(words)
    return word in _UNKNOWN or word.startswith(_UNKNOWN_STARTS)


def read_log(text: str) -> SmiLog:
    """Read the output of ``nvidia-smi -q -x``; raises SmiUnreadable if there is no log in it."""
    if len(text) > MOST_CHARACTERS:
        raise _unreadable(f"more than {MOST_CHARACTERS >> 20} MiB", text)
    found = _LOG.search(text)
    if found is None:
        raise _unreadable("no XML log", text)
    before, after = _PROLOG.sub("", text[: found.start()]), text[found.end() :]
    # Entities can only be declared in a document type, and the log is parsed without any.
    if "<!" in before:
        raise _unreadable("a log with definitions of its own", before)
    try:
        root = ET.fromstring(_PROCESS_NAME.sub("", found[0]))  # noqa: S314 - see above
    except ET.ParseError as error:
        raise _unreadable(f"a log that is not XML ({error})", "") from error
    gpus = tuple(map(_read_gpu, root.iter("gpu")))
    own = SmiElement(_known_values([child for child in root if child.tag != "gpu"]))
    beside = f"{before}\n{after}".splitlines()
    return SmiLog(own, gpus, tuple(line.strip() for line in beside if line.strip()))


def _read_gpu(element: ET.Element) -> SmiGpu:
    address = element.get("id") or element.findtext("pci/pci_bus_id") or ""
    try:
        pci = PciAddress.parse(address.strip())
    except ValueError as error:
        raise _unreadable(f"a GPU without a PCI address ({address[:40]!r})", "") from error
    inside = element.find("mig_devices")
    migs = () if inside is None else tuple(inside.findall("mig_device"))
    # Without MIG devices the element has the text None; without an answer it says N/A.
    says_none = inside is not None and plain(inside.text or "") == "none"
    own = _known_values([child for child in element if child.tag not in ("mig_devices", "processes")])
    read = tuple(SmiElement(_known_values(list(mig))) for mig in migs)
    return SmiGpu(pci, SmiElement(own), read if migs or says_none else None)


def _known_values(elements: Sequence[ET.Element]) -> dict[str, str]:
    """The known texts of all elements without others in them, by path; of two at one path the first."""
    found: dict[str, str] = {}
    waiting = [(element.tag, element) for element in reversed(elements)]
    while waiting:
        path, element = waiting.pop()
        inside = [(f"{path}/{child.tag}", child) for child in element]
        text = (element.text or "").strip()
        if not inside and not is_unknown(text):
            found.setdefault(path, text)
        waiting += reversed(inside)
    return found


def _unreadable(what: str, shown: str) -> SmiUnreadable:
    words = " / ".join(line.strip() for line in shown.splitlines() if line.strip())[:200]
    return SmiUnreadable(
        f"nvidia-smi -q -x printed {what}{f': {words}' if words else ''}",
        "run it on the node; look for messages of the NVIDIA driver in the kernel log (dmesg)",
    )
