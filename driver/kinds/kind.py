"""The interface of a kind of devices that a node offers: each kind is one object in a registry.

Code that has a device or its name asks the kind and never works out by itself what the device is. What
prepare does for the same kind is in ``kubeletplugin.devices.kinds.kind``; ``word`` connects the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from driver.devices.gpu_policy import GpuPolicy
from driver.devices.region import Region
from driver.devices.sharing import SharedForm, split_shared_suffix
from driver.hardware.gpu import Gpu, Inventory
from driver.kinds.forms import Forms
from driver.nvml.pci_address import PciAddress

Policies = Mapping["PciAddress", "GpuPolicy"]
"""The policy of each GPU; GPUs that offer no device are left out."""


class PolicyField(Protocol):
    """A field of a rule of the node configuration.

    ``schema`` is its JSON schema: the words and numbers that it takes, not what they mean together.
    """

    name: str
    schema: dict[str, Any]

    def read(self, value: Any, path: str, errors: list[str]) -> Any:
        """The field's meaning; each mistake is added to ``errors`` and begins with the path of the field."""
        ...

    def implied_form(self, policy: GpuPolicy) -> str | None:
        """The form of a rule that has this field and no ``offer``; None if the field implies none."""
        return None

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """Fields of the rule that exclude each other: for each a field name and a sentence."""
        return iter(())


class Offering(Protocol):
    """What adds devices to a node: a kind, or a layer over the kinds.

    ``form`` is its word in the field ``offer`` of a rule, empty if a rule cannot name it.
    ``attribute_type`` is the value of the attribute ``type`` of its devices.
    """

    form: str
    attribute_type: str
    policy_field: PolicyField | None

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """``so_far`` with the devices of this offering; it gets the whole node, as some devices span GPUs."""
        ...


class OfferedKind(Offering, Protocol):
    """A kind of device, as it is published.

    ``word`` is its name in the journal and in logs. ``opaque`` is the kind of opaque configuration that its
    devices take, empty for none. ``described`` names such a device in messages.

    ``by_admin``: an admin makes the devices, so they come and go without this driver. ``has_modes``: a device
    is a GPU with a compute mode and a time-slice, which sharing sets. ``leaves_driver``: while a claim has
    the device, its GPUs have another kernel driver, so NVML does not list them.
    """

    word: str
    opaque: str
    described: str
    by_admin: bool
    has_modes: bool
    leaves_driver: bool

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """What a device of this name takes at least; None if the name is not of this kind.

        ``unshared`` is the device name without the suffix that says how the device is shared.
        """
        ...

    def stored(self, unshared: str, consumes: Mapping[str, int]) -> tuple[Region, ...]:
        """What a stored device takes, by its name and the counters that it consumes."""
        return self.parse(unshared) or ()

    def place(self, unshared: str, gpus: Mapping[PciAddress, Gpu]) -> tuple[Region, ...]:
        """What a device of this name takes of these GPUs; all of a GPU whose partitions are not known."""
        return self.parse(unshared) or ()

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """The device's label in a picture of its GPU, such as ``1g.10gb``; empty for the GPU itself."""
        return ""

    def position(self, unshared: str) -> str:
        """Where on its GPU the device lies, such as ``at 6``; empty if it takes all of it."""
        return ""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """What a device's name says, with its kind.

    ``unshared`` is the name without the suffix for sharing. ``shared`` says how the device is shared, None
    if one claim has it for itself. ``regions`` is what the device takes at least, according to its name.
    ``gpus`` are the addresses of its GPUs as sysfs writes them, none for a device that lies on no GPU.
    """

    device: str
    unshared: str
    kind: OfferedKind
    shared: SharedForm | None
    regions: tuple[Region, ...]
    gpus: tuple[str, ...]

    @property
    def takes_all(self) -> bool:
        """Whether it takes all of its GPU, whether for one claim or for several."""
        return bool(self.regions) and all(region.span is None for region in self.regions)

    @property
    def pci(self) -> PciAddress | None:
        """The GPU that the device is or lies on; the first of several, None without any."""
        return self.regions[0].pci if self.regions else None


class Kinds:
    """The kinds that a node knows, and the layers over them, in the order in which they add their devices.

    A layer offers devices of the kinds in another way; the name of such a device gives the kind beneath.
    """

    def __init__(self, kinds: Sequence[OfferedKind], layers: Sequence[Offering] = ()) -> None:
        self._kinds = {kind.word: kind for kind in kinds}
        self._layers = tuple(layers)
        # Each comparison of the slices with what is offered asks for the same names several times.
        self._parsed = lru_cache(maxsize=512)(self._parse)

    @contextmanager
    def added(self, kind: OfferedKind) -> Iterator[None]:
        """Within the block there is one more kind, or it takes the place of the one with the same word."""
        before = self._kinds
        self._kinds = {**before, kind.word: kind}
        self._parsed.cache_clear()
        try:
            yield
        finally:
            self._kinds = before
            self._parsed.cache_clear()

    @property
    def offerings(self) -> tuple[Offering, ...]:
        """The kinds, and then the layers over them."""
        return (*self, *self._layers)

    def __iter__(self) -> Iterator[OfferedKind]:
        return iter(self._kinds.values())

    def of_word(self, word: str) -> OfferedKind | None:
        """The kind with this word; None if this version has none."""
        return self._kinds.get(word)

    def parse(self, device: str) -> DeviceName | None:
        """What a device name means; None if this driver does not give such names."""
        return self._parsed(device)

    def _parse(self, device: str) -> DeviceName | None:
        unshared, shared = split_shared_suffix(device)
        for kind in self:
            regions = kind.parse(unshared)
            if regions is not None:
                gpus = tuple(str(region.pci) for region in regions)
                return DeviceName(device, unshared, kind, shared, regions, gpus)
        return None

    def described(self, opaque: str) -> str:
        """The devices that take this kind of opaque configuration, for messages; empty if none does."""
        return " or ".join(dict.fromkeys(kind.described for kind in self if kind.opaque == opaque))

    @property
    def policy_fields(self) -> tuple[PolicyField, ...]:
        """The fields of a rule of the node configuration."""
        return tuple(one.policy_field for one in self.offerings if one.policy_field is not None)

    @property
    def forms(self) -> tuple[str, ...]:
        """The words that the field ``offer`` of a rule takes."""
        return tuple(dict.fromkeys(one.form for one in self.offerings if one.form))
