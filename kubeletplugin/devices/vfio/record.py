"""What the record of a held device says about each function of its group that is bound to vfio."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.entry import Record

FUNCTIONS = "functions"
"""The key of the record that holds the functions; the other keys belong to the kind."""

Done = Literal["seen", "overriding", "unbinding", "probing", "bound", "giving-back", "given-back"]
_DONE: tuple[str, ...] = get_args(Done)
_UNCHANGED: frozenset[str] = frozenset({"seen", "given-back"})


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """One function: its former state, the driver it gets, and the last change that was started."""

    pci: str
    # Its driver and its driver_override before the first change, empty for none.
    driver: str
    override: str
    # The driver that it gets.
    vfio: str
    # Journaled before the change that it names: each change up to it may have happened, and none after it.
    done: Done = "seen"

    @property
    def address(self) -> PciAddress:
        """Its PCI address."""
        return PciAddress.parse(self.pci)

    @property
    def may_have_changed(self) -> bool:
        """Whether its driver or its override may differ from its former state."""
        return self.done not in _UNCHANGED


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The functions of a group in the order in which they are bound, and the rest of the device's record."""

    functions: tuple[FunctionRecord, ...]
    rest: Record

    @classmethod
    def read(cls, record: Record) -> GroupRecord:
        """Read a device's record. Functions that cannot be parsed count as never changed.

        A newer version may have added fields and words for ``done``; unknown words count as changes.
        """
        rest = {key: value for key, value in record.items() if key != FUNCTIONS}
        return cls(tuple(_functions(record.get(FUNCTIONS))), rest)

    def of(self, pci: PciAddress) -> FunctionRecord | None:
        """The record of one function."""
        return next((one for one in self.functions if one.pci == str(pci)), None)

    def put(self, function: FunctionRecord) -> GroupRecord:
        """A copy with this function in the place of its former record, or at the end."""
        if self.of(function.address) is None:
            return replace(self, functions=(*self.functions, function))
        kept = tuple(function if one.pci == function.pci else one for one in self.functions)
        return replace(self, functions=kept)

    @property
    def written(self) -> Record:
        """The record as JSON; without its functions if none of them may have changed."""
        if not any(one.may_have_changed for one in self.functions):
            return dict(self.rest)
        return {**self.rest, FUNCTIONS: [asdict(one) for one in self.functions]}


def _functions(listed: Any) -> Iterator[FunctionRecord]:
    names = [field.name for field in fields(FunctionRecord)]
    for one in listed if isinstance(listed, list) else ():
        try:
            values = {name: str(one[name]) for name in names}
            if values["done"] not in _DONE:
                values["done"] = "giving-back"
            function = FunctionRecord(**values)  # type: ignore[arg-type] # the word was looked up above
            PciAddress.parse(function.pci)
        except (KeyError, TypeError, ValueError):
            continue
        yield function
