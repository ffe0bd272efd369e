"""Decides which devices a claim gets on this node, before anything is changed: every refusal comes first.

``Allocations`` reads the claim's allocation, ``plan`` decodes the configuration of each device, and
``locate`` finds the device on the hardware. It refuses a device that another claim holds. ``with_board``
refuses one whose GPU was exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from driver.claims.allocation import AllocatedDevice, Claim, ClaimConfig, read_claim
from driver.claims.opaque import KINDS as OPAQUE_KINDS
from driver.claims.opaque import Document, decode_for
from driver.devices.names import unshared_name
from driver.devices.region import overlap
from driver.errors import ApiError, ClaimBlocked, ClaimRefused, DeviceHeld, NvmlError
from driver.kinds.channel import channel_number
from driver.kinds.kind import DeviceName
from driver.kinds.registry import KINDS
from driver.process.log import get_logger
from kubeletplugin.claims.files import board_changed
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.ports import Ports
from kubeletplugin.devices.kinds.kind import HardwareNow, HeldKind
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.kubelet.wire.names import cdi_device_name, cdi_qualified_name
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from kubeletplugin.sharing.shares import sharing_request

_log = get_logger("preparer")


class Allocations:
    """Reads the allocations of claims from the API server, but only where the journal may be out of date."""

    def __init__(self, ports: Ports, driver: str) -> None:
        self._ports = ports
        self._driver = driver
        # When the kubelet had registered the plugin, by the claims that were checked since then.
        self._checked: dict[str, int] = {}

    def read(self, ref: ClaimRef) -> Claim:
        """Read the claim. Raises ApiError, ClaimRefused, ClaimBlocked."""
        with self._ports.listeners.timing.during("claim"):
            return read_claim(self._ports.cluster.get_claim(ref.namespace, ref.name), ref.uid, self._driver)

    def changed(self, ref: ClaimRef, prepared: Entry, call: Call) -> Claim | None:
        """The claim if it has other devices now than it was prepared with, else None.

        None also while the API server does not answer: the claim then keeps what was prepared. Raises
        ClaimRefused and ClaimBlocked as ``read`` does.
        """
        # A claim that no pod uses any more loses its allocation, and may get another one under the same UID.
        # The kubelet unprepares it before that, unless it has lost its checkpoint. Then it prepares the claim
        # as a new one. Only a kubelet that registered the plugin after the claim was prepared can have lost
        # it, so the API server is read once for each such claim; all other repeated calls are answered from
        # the journal.
        since = call.registered_ns
        if not prepared.changed_ns < since or self._checked.get(ref.uid) == since:
            return None
        try:
            claim = self.read(ref)
        except ApiError as error:
            _log.warning(
                "cannot check whether a claim has other devices now", uid=ref.uid, error=error.logged
            )
            return None
        if not has_allocated(prepared, claim):
            return claim
        # Drops what was checked for an earlier registration, so that this does not grow for ever.
        self._checked = {uid: at for uid, at in self._checked.items() if at == since} | {ref.uid: since}
        return None


def has_allocated(entry: Entry, claim: Claim) -> bool:
    """Whether the entry has the devices of the claim's allocation, and no others."""
    return _held(entry) == _allocated(claim)


def has_former(entry: Entry, claim: Claim) -> bool:
    """Whether the entry has a device that is not in the claim's allocation."""
    return not _held(entry) <= _allocated(claim)


_Key = tuple[str, str, str | None]


def _held(entry: Entry) -> set[_Key]:
    return {(one.pool, one.allocated_name, one.share_id) for one in entry.devices}


def _allocated(claim: Claim) -> set[_Key]:
    return {(one.pool, one.device, one.share_id) for one in claim.devices}


def plan(claim: Claim, pool: str) -> tuple[PlannedDevice, ...]:
    """The devices that the claim was allocated from this driver, in allocation order.

    ``pool`` is that of this node; empty for devices of several nodes, whose pool their kind checks.

    Raises ClaimRefused for a device or a pool that this node does not have, for a malformed configuration,
    and for one that the device cannot fulfil.
    """
    planned = tuple(_planned(claim, device, pool) for device in claim.devices)
    _refuse_given_twice(claim, planned)
    _refuse_unused(claim, planned)
    return planned


def _refuse_given_twice(claim: Claim, planned: Iterable[PlannedDevice]) -> None:
    """Raise ClaimRefused if the claim was given one device twice."""
    seen: set[str] = set()
    for one in planned:
        # Admin access does not allocate the device, so several requests of a claim may name it.
        if one.allocated.admin_access:
            continue
        if one.cdi_device in seen:
            raise ClaimRefused(
                f"claim {claim.namespace}/{claim.name} was given device {one.name.device} twice",
                "delete the pod, so that it is scheduled again",
            )
        seen.add(one.cdi_device)


def _refuse_unused(claim: Claim, planned: Sequence[PlannedDevice]) -> None:
    """Raise ClaimRefused for a configuration for all requests that fits none of the claim's devices.

    Its author relies on limits or on sharing that would not be there.
    """
    # It may be meant for an alternative that the scheduler did not choose. NVIDIA's driver ignores it, too.
    has_alternatives = any("/" in one.allocated.request for one in planned)
    for config in claim.configs:
        kind = _kind_of(config)
        if config.names_requests or any(kind == one.name.kind.opaque for one in planned):
            continue
        for one in () if has_alternatives else planned[:1]:
            _decoded(claim, one.allocated, config, one.name)  # which refuses it


def _kind_of(config: ClaimConfig) -> str:
    """The ``kind`` field of a configuration, empty if it has none."""
    kind = config.parameters.get("kind") if isinstance(config.parameters, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _planned(claim: Claim, device: AllocatedDevice, pool: str) -> PlannedDevice:
    if pool not in ("", device.pool):
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name} was given device {device.device} of pool {device.pool}, "
            f"but this node's pool is {pool}",
            "delete the pod, so that it is scheduled again",
        )
    name = KINDS.parse(device.device)
    # The drivers of GPUs and of channels have a journal each. A GPU that came by the name of the other driver
    # could be given away twice.
    is_channel, wants_channels = channel_number(device.device) is not None, pool == ""
    if name is None or is_channel != wants_channels:
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name} was given device {device.device}, which this node does "
            "not offer",
            "delete the pod, so that it is scheduled again with a device that exists",
        )
    configs = [
        (config.is_of_class, _decoded(claim, device, config, name))
        for config in claim.configs_of(device)
        if _is_meant_for(config, name)
    ]
    # They come weakest first: those of the DeviceClass, then those of the claim.
    config = configs[-1][1] if configs else None
    of_class = next((decoded for is_of_class, decoded in reversed(configs) if is_of_class), None)
    cdi_device = cdi_device_name(claim.uid, device.device, device.share_id)
    is_whole = config is None and name.shared is None
    sharing = None if is_whole else sharing_request(device, name, config, of_class)
    return PlannedDevice(device, name, cdi_device, sharing, config)


def _is_meant_for(config: ClaimConfig, name: DeviceName) -> bool:
    """Whether a configuration that applies to the device's request has to fit the device."""
    # Without requests it is for all of the claim, and another kind means that it is meant for other devices.
    # With requests it names this one, and another kind is a mistake, as with NVIDIA's driver.
    kind = _kind_of(config)
    return config.names_requests or kind not in OPAQUE_KINDS or kind == name.kind.opaque


def _decoded(claim: Claim, device: AllocatedDevice, config: ClaimConfig, name: DeviceName) -> Document:
    """The configuration. Raises ClaimRefused if it is malformed, or for another kind of device."""
    try:
        return decode_for(config.parameters, name.kind.opaque, name.kind.described)
    except ClaimRefused as error:
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name}, request {device.request}: {error.what}", error.way_out
        ) from error


def gpus_of(devices: Iterable[PlannedDevice]) -> set[str]:
    """The PCI addresses of the devices' GPUs.

    A device without a GPU is locked by its own name, as in the journal.
    """
    return {place for one in devices for place in one.name.gpus or (one.name.device,)}


def answer(devices: tuple[HeldDevice, ...], driver: str) -> tuple[PreparedDevice, ...]:
    """The answer for the kubelet; ``driver`` is the DRA driver.

    It is made from the journal's entry alone, so a retry gets the same answer.
    """
    answered = []
    for held in devices:
        # Without the subrequest: the kubelet compares it with the request that a container names.
        request, cdi_device = held.request.partition("/")[0], cdi_qualified_name(held.cdi_device, driver)
        answered.append(
            PreparedDevice((request,), held.pool, held.allocated_name, (cdi_device,), held.share_id)
        )
    return tuple(answered)


def own_devices(before: Entry | None, journal: Journal) -> Mapping[str, HeldDevice]:
    """The devices that an earlier try of the claim left and that still exist, by name."""
    if before is None or not before.holds or before.state == "lost":
        return {}
    return {held.device: held for held in before.devices if journal.is_live(before, held)}


def locate(
    device: PlannedDevice,
    own: HeldDevice | None,
    uid: str,
    hardware: HardwareNow,
    kind: HeldKind,
    journal: Journal,
) -> HeldDevice:
    """Find the device on the hardware.

    Raises DeviceHeld if another claim than ``uid`` has it, else what its kind raises.
    """

    def refuse(held: HeldDevice) -> None:
        _refuse_if_held(held, uid, journal.holders_of(held))

    try:
        found = kind.locate(device, own, hardware)
    except (NvmlError, ClaimRefused, ClaimBlocked):
        # The other claim may be the cause: NVML does not know a GPU that a claim has taken from the NVIDIA
        # driver, and a GPU in MIG mode cannot go to a virtual machine. DeviceHeld is raised then, as prepare
        # waits for it.
        refuse(HeldDevice.of(device, ""))
        raise
    refuse(found)
    return found


def with_board(found: HeldDevice, published: str | None) -> HeldDevice:
    """The device with the UUID of its GPU: the published one if NVML could not give it now.

    ``published`` is None if no slice was seen. Raises HardwareChanged if the two differ.
    """
    if published is None:
        return found
    if not found.uuid:
        return replace(found, uuid=published)
    if found.uuid != published:
        raise board_changed(found.device, published, found.uuid)
    return found


def _refuse_if_held(device: HeldDevice, claim_uid: str, holders: Sequence[Entry]) -> None:
    """Raise DeviceHeld if another claim has the device, or a part of it, for itself.

    This rule holds for all kinds: two devices exclude each other if they occupy the same part of a GPU.
    Claims with admin access exclude nobody, and shares of one device do not exclude each other. ``holders``
    are the claims with something on the GPUs of the device.
    """
    # The scheduler can allocate a device that is still held: after a pod was deleted by force, or if there
    # are two schedulers.
    if device.admin_access or not holders:
        return
    is_share = unshared_name(device.device) != device.device
    for entry in holders:
        for held in entry.devices:
            if entry.uid == claim_uid or held.admin_access or (is_share and held.device == device.device):
                continue
            if _collide(device, held):
                same = held.device == device.device
                how = "is" if same else f"takes a part of {device.device} and is"
                # The pod's events show the message, and must not name claims of other namespaces. The log
                # may.
                raise DeviceHeld(
                    f"device {held.device} {how} still held by another claim",
                    "it is released when that claim's pod has ended",
                    for_log=f"held by claim {entry.owner}",
                    holders=(entry.uid,),
                )


def _collide(device: HeldDevice, held: HeldDevice) -> bool:
    """Whether the two devices cannot exist at the same time."""
    if device.device == held.device:
        return True
    return overlap(HELD_KINDS.of(device).occupies(device), HELD_KINDS.of(held).occupies(held))
