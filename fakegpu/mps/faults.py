"""The rules by which the control daemon of MPS on a fake machine goes wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from driver.nvml.pci_address import PciAddress

ANY_COMMAND = "*"
START = "start"
"""What a rule calls the start of a daemon."""

MpsFaultKind = Literal["hang", "die", "lie", "refuse"]


@dataclass(frozen=True, slots=True)
class MpsFault:
    """A rule for the daemons of one GPU, or of whatever; ``times`` counts down, None never ends.

    ``command`` is a word of the daemon's language, ``start``, or ``*`` for any. ``hang``: the daemon does
    nothing for as long as the rule is there. ``die``: it ends without a word once it has done the command.
    ``lie``: a command that sets a limit is taken, and ``words`` is set in place of what was asked for.
    ``refuse``: it answers ``words`` and does nothing; a start ends with them.
    """

    number: int
    kind: MpsFaultKind
    command: str
    pci: PciAddress | None
    words: str = ""
    times: int | None = None

    def hits(self, command: str, gpus: tuple[PciAddress, ...]) -> bool:
        """Whether the rule spoils this command of a daemon that serves these GPUs."""
        return self.command in (ANY_COMMAND, command) and (self.pci is None or self.pci in gpus)

    def to_document(self) -> dict[str, Any]:
        """The rule as a state file has it."""
        return asdict(self) | {"pci": self.pci and str(self.pci)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> MpsFault:
        """Read a rule; raises TypeError or ValueError when it is none."""
        pci = document.pop("pci")
        return cls(pci=None if pci is None else PciAddress.parse(pci), **document)


def without_use(faults: Iterable[MpsFault], used: Iterable[MpsFault]) -> tuple[MpsFault, ...]:
    """The rules after those of ``used`` have hit once more; the last hit of a counted rule removes it."""
    numbers = {fault.number for fault in used}
    left = []
    for fault in faults:
        if fault.number not in numbers or fault.times is None:
            left.append(fault)
        elif fault.times > 1:
            left.append(replace(fault, times=fault.times - 1))
    return tuple(left)
