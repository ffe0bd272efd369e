"""The interface of a kind of devices that a node offers: each kind is one object in a registry.

Code that has a device or its name asks the kind, and never infers by itself what a device is. The other half
of a kind, what prepare does for it, is ``kubeletplugin.devices.kinds.kind``; both say the same word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from driver.devices.gpu_policy import GpuPolicy
from driver.devices.region import Region
from driver.devices.sharing import SharedForm, split_shared_suffix
from driver.hardware.gpu import Gpu, Inventory
from driver.kinds.forms import Forms
from driver.nvml.pci_address import PciAddress

Policies = Mapping["PciAddress", "GpuPolicy"]
"""The policy of each GPU; GPUs of which nothing is offered are left out."""


class PolicyField(Protocol):
    """A field of a rule of the node configuration.

    ``schema`` is its JSON schema: the words and numbers that it takes, not what they mean together.
    """

    name: str
    schema: dict[str, Any]

    def read(self, value: Any, path: str, errors: list[str]) -> Any:
        """The field's meaning; what is wrong with it is added to ``errors``, each with its path."""
        ...

    def implied_form(self, policy: GpuPolicy) -> str | None:
        """The form that a rule with this field means where it names none; None where it implies nothing."""
        ...

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """What of the rule does not go together, each a field and a sentence."""
        ...


class Offering(Protocol):
    """What adds devices to a node: a kind, or a layer over the kinds.

    ``form`` is the word by which the field ``offer`` of a rule asks for it, empty where it cannot.
    ``attribute_type`` is the value of the attribute ``type`` of its devices.
    """

    form: str
    attribute_type: str
    policy_field: PolicyField | None

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """All that the node offers, once this one has added its devices to what those before it offer.

        It sees all of the node, since some devices span GPUs.
        """
        ...


class OfferedKind(Offering, Protocol):
    """A kind of device, as it is published.

    ``word`` is how the journal and logs name it. ``opaque`` is the kind of opaque configuration that its
    devices take, empty for none, and ``described`` names such a device in messages. ``by_admin``: an admin
    makes the devices, so they come and go without this driver. ``has_modes``: a device is a GPU
    with a compute mode and a time-slice, which sharing sets. ``leaves_driver``: its GPUs are not with the
    NVIDIA driver while a claim has the device, so that NVML tells nothing of them.
    """

    word: str
    opaque: str
    described: str
    by_admin: bool
    has_modes: bool
    leaves_driver: bool

    def parse(self, unshared: str) -> tuple[Region, ...] | None:
        """What a device of this name takes at least, None for a name that is not this kind's.

        ``unshared`` is the name without the end that says how the device is shared.
        """
        ...

    def stored(self, unshared: str, consumes: Mapping[str, int]) -> tuple[Region, ...]:
        """What a stored device takes, as far as its name and the counters that it consumes tell."""
        ...

    def place(self, unshared: str, gpus: Mapping[PciAddress, Gpu]) -> tuple[Region, ...]:
        """What a device of this name takes on these GPUs; all of a GPU where they do not tell."""
        ...

    def title(self, unshared: str, attributes: Mapping[str, Any]) -> str:
        """The device in a picture of its GPU: ``1g.10gb``; empty for the GPU itself."""
        ...

    def position(self, unshared: str) -> str:
        """Where on its GPU the device lies: ``at 6``; empty for all of it."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceName:
    """What a device's name says, with its kind.

    ``unshared`` is the name of what is shared, ``shared`` how, None for a device that one claim has for
    itself. ``regions`` is what the device takes according to its name: at least that. ``gpus`` are the
    addresses of its GPUs as sysfs writes them, none for a device that lies on no GPU.
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

    A layer offers devices of the kinds in another way; their names tell the kind beneath.
    """

    def __init__(self, kinds: Sequence[OfferedKind], layers: Sequence[Offering] = ()) -> None:
        self._kinds = tuple(kinds)
        self.offerings: tuple[Offering, ...] = (*kinds, *layers)

    def __iter__(self) -> Iterator[OfferedKind]:
        return iter(self._kinds)

    def with_kind(self, kind: OfferedKind) -> Kinds:
        """These kinds and one more, which sees what they offer."""
        return Kinds((*self._kinds, kind), self.offerings[len(self._kinds) :])

    def parse(self, device: str) -> DeviceName | None:
        """What a name that this driver gave means; None for any other."""
        unshared, shared = split_shared_suffix(device)
        for kind in self._kinds:
            regions = kind.parse(unshared)
            if regions is not None:
                gpus = tuple(str(region.pci) for region in regions)
                return DeviceName(device, unshared, kind, shared, regions, gpus)
        return None

    def described(self, opaque: str) -> str:
        """The devices that take this kind of opaque configuration, for messages; empty where none does."""
        return next((kind.described for kind in self._kinds if kind.opaque == opaque), "")

    @property
    def policy_fields(self) -> tuple[PolicyField, ...]:
        """The fields of a rule of the node configuration."""
        return tuple(one.policy_field for one in self.offerings if one.policy_field is not None)

    @property
    def forms(self) -> tuple[str, ...]:
        """The words that the field ``offer`` of a rule takes."""
        return tuple(dict.fromkeys(one.form for one in self.offerings if one.form))
