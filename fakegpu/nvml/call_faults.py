"""Rules that spoil the calls of a fake machine, as its state keeps them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from driver.nvml.pci_address import PciAddress

ANY_CALL = "*"


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that spoils calls: those named ``call`` (``*`` is any), on one GPU or on whatever.

    ``code`` is the NVML return code to fail with. Without one, calls take ``seconds`` longer; without
    both, they hang for as long as the rule is there. ``times`` counts down with each call that it
    hits; None never ends. With ``after`` the call has done its work before it fails. With ``lie`` a call that
    changes a GPU says yes and does nothing.
    """

    number: int
    call: str
    pci: PciAddress | None
    code: int | None
    times: int | None = None
    seconds: float | None = None
    after: bool = False
    lie: bool = False

    def hits(self, call: str, pci: PciAddress | None) -> bool:
        """Whether the rule spoils this call."""
        return self.call in (ANY_CALL, call) and self.pci in (None, pci)

    @classmethod
    def from_document(cls, document: dict[str, object]) -> Fault:
        """Read what ``to_document`` wrote; raises KeyError, TypeError, ValueError."""
        pci = document.pop("pci")
        address = PciAddress.parse(pci) if isinstance(pci, str) else None
        return cls(pci=address, **document)  # type: ignore[arg-type]  # TypeError if not

    def to_document(self) -> dict[str, object]:
        """The rule as JSON."""
        return asdict(self) | {"pci": self.pci and str(self.pci)}


def without_use(faults: tuple[Fault, ...], number: int) -> tuple[Fault, ...]:
    """The rules after a counted one has hit once; the last hit removes it."""
    kept = []
    for fault in faults:
        if fault.number != number or fault.times is None:
            kept.append(fault)
        elif fault.times > 1:
            kept.append(replace(fault, times=fault.times - 1))
    return tuple(kept)
