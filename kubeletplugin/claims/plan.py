"""Decides which devices a claim gets on this node, before anything is touched: every refusal comes first.

``Allocations`` asks what the claim was allocated, ``plan`` decodes the configuration of each device, and
``located`` finds what the device is on the hardware now; it refuses one that another claim holds or whose
board was exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from driver.claims.allocation import AllocatedDevice, Claim, ClaimConfig, read_claim
from driver.claims.opaque import KINDS as OPAQUE_KINDS
from driver.claims.opaque import SHARED_GPU, Document, decode_for, is_for
from driver.devices.names import unshared_name
from driver.devices.region import overlap
from driver.errors import ApiError, ClaimBlocked, ClaimRefused, DeviceHeld, NvmlError
from driver.kinds.kind import DeviceName
from driver.process.log import get_logger
from kubeletplugin.claims.files import board_changed
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.ports import Ports
from kubeletplugin.devices.kinds.kind import HeldKinds, Look
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.kubelet.wire.names import cdi_device_name, cdi_qualified_name
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from kubeletplugin.sharing.plan import wish_of

_log = get_logger("preparer")


class Allocations:
    """What claims were allocated, by the API server, which is asked only where the journal may be outdated.

    A claim that no pod uses any more loses its allocation, and may get another one under the same UID. The
    kubelet unprepares it before that; a kubelet that has lost its records does not, and asks for the claim as
    for a new one. So a call that repeats another one is answered from the journal. Only a kubelet that
    registered the plugin after the claim was prepared may have forgotten it: the API server is asked once for
    each such claim.
    """

    def __init__(self, ports: Ports, driver: str) -> None:
        self._ports = ports
        self._driver = driver
        self._seen: dict[str, int] = {}

    def of(self, ref: ClaimRef) -> Claim:
        """The claim as the API server has it; raises ApiError, ClaimRefused, ClaimBlocked."""
        with self._ports.timing.during("claim"):
            return read_claim(self._ports.get_claim(ref.namespace, ref.name), ref.uid, self._driver)

    def changed(self, ref: ClaimRef, prepared: Entry, call: Call) -> Claim | None:
        """The claim if it has other devices now than it was prepared with, else None.

        None also while the API server does not answer: the claim then keeps what was prepared. Raises
        ClaimRefused and ClaimBlocked as ``of`` does.
        """
        since = call.registered_ns
        if not prepared.changed_ns < since or self._seen.get(ref.uid) == since:
            return None
        try:
            claim = self.of(ref)
        except ApiError as error:
            _log.warning("what the claim was allocated is not known", uid=ref.uid, error=error.logged)
            return None
        if not has_allocated(prepared, claim):
            return claim
        # Those of an earlier kubelet are asked about anew, so no more stay than claims were held then.
        self._seen = {uid: at for uid, at in self._seen.items() if at == since} | {ref.uid: since}
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


def plan(claim: Claim, pool: str, kinds: HeldKinds) -> tuple[PlannedDevice, ...]:
    """The devices that the claim was given by us, in allocation order.

    Raises ClaimRefused for a device or a pool that this node does not have, a configuration that is
    malformed, or one that asks for what the device cannot do.
    """
    planned = tuple(_planned(claim, device, pool, kinds) for device in claim.devices)
    _refuse_given_twice(claim, planned)
    _refuse_divided_nothing(claim, planned)
    return planned


def _refuse_given_twice(claim: Claim, planned: Iterable[PlannedDevice]) -> None:
    """Raise ClaimRefused where the claim was given one device twice: it could have it only once."""
    seen: set[str] = set()
    for one in planned:
        if one.allocated.admin_access:
            continue  # several requests may look at one device
        if one.cdi_device in seen:
            raise ClaimRefused(
                f"claim {claim.namespace}/{claim.name} was given device {one.name.device} twice",
                "delete the pod, so that it is scheduled anew",
            )
        seen.add(one.cdi_device)


def _refuse_divided_nothing(claim: Claim, planned: Iterable[PlannedDevice]) -> None:
    """Raise ClaimRefused for a configuration that divides memory and is for none of the claim's devices.

    The author of such a configuration counts on limits. Any other configuration for devices of another kind
    has no effect, as with NVIDIA's driver.
    """
    wanted = {one.name.kind.opaque: one.name.kind.described for one in planned}
    for config in claim.configs:
        if _kind_of(config) != SHARED_GPU or config.parameters.get("memory") is None:
            continue
        if wanted and not any(is_for(SHARED_GPU, one) for one in wanted):
            raise ClaimRefused(
                f"claim {claim.namespace}/{claim.name} has a {SHARED_GPU} that divides the memory of a GPU, "
                f"and was given {' and '.join(sorted(wanted.values()))}, whose memory it cannot divide",
                "leave `memory` out of the configuration, or ask for a GPU or a share of one",
            )


def _kind_of(config: ClaimConfig) -> str:
    """The kind that a configuration says it is, empty where it says none."""
    kind = config.parameters.get("kind") if isinstance(config.parameters, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _planned(claim: Claim, device: AllocatedDevice, pool: str, kinds: HeldKinds) -> PlannedDevice:
    if device.pool != pool:
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name} was given device {device.device} of pool {device.pool}, "
            f"this node's pool is {pool}",
            "delete the pod, so that it is scheduled anew",
        )
    name = kinds.parse(device.device)
    if name is None:
        raise ClaimRefused(
            f"device {device.device} of claim {claim.namespace}/{claim.name} is none that this node offers",
            "delete the pod, so that it is scheduled anew with a device that exists",
        )
    configs = [
        (config.is_of_class, decoded)
        for config in claim.configs_of(device)
        if (decoded := _decoded(claim, device, config, name)) is not None
    ]
    config = configs[-1][1] if configs else None
    of_class = next((decoded for is_of_class, decoded in reversed(configs) if is_of_class), None)
    cdi_device = cdi_device_name(claim.uid, device.device, device.share_id)
    is_whole = config is None and name.shared is None  # nothing says how it could be shared
    wish = None if is_whole else wish_of(device, name, config, of_class)
    return PlannedDevice(device, name, cdi_device, wish, config)


def _decoded(claim: Claim, device: AllocatedDevice, config: ClaimConfig, name: DeviceName) -> Document | None:
    """The configuration if it is for this kind of device.

    A configuration for all requests may be of another kind, and is then meant for other devices. One that
    names this request and is of another kind is a mistake.
    """
    kind, wanted = _kind_of(config), name.kind.opaque
    if not config.requests and kind in OPAQUE_KINDS and not is_for(kind, wanted):
        return None
    try:
        return decode_for(config.parameters, wanted, name.kind.described, of_class=config.is_of_class)
    except ClaimRefused as error:
        raise ClaimRefused(
            f"claim {claim.namespace}/{claim.name}, request {device.request}: {error.what}", error.way_out
        ) from error


def gpus_of(devices: Iterable[PlannedDevice]) -> tuple[str, ...]:
    """The physical GPUs of the devices, each once, in the order in which they are locked.

    A device that lies on no GPU is locked by its own name, as in the journal; otherwise two claims could take
    it at once.
    """
    return tuple(sorted({place for one in devices for place in one.name.gpus or (one.name.device,)}))


def answer(devices: tuple[HeldDevice, ...]) -> tuple[PreparedDevice, ...]:
    """The answer for the kubelet, made from the journal entry, so that a retry gets the same answer."""
    answered = []
    for held in devices:
        request, cdi_device = held.request.partition("/")[0], cdi_qualified_name(held.cdi_device)
        answered.append(
            PreparedDevice((request,), held.pool, held.allocated_name, (cdi_device,), held.share_id)
        )
    return tuple(answered)


def own_devices(before: Entry | None, era: Era, kinds: HeldKinds) -> Mapping[str, HeldDevice]:
    """The devices that an earlier try of the claim left, by name, if they still exist in this era."""
    if before is None or not before.holds:
        return {}
    return {held.device: held for held in before.devices if kinds.is_live(before, held, era)}


def located(
    device: PlannedDevice, own: HeldDevice | None, uid: str, look: Look, kinds: HeldKinds, journal: Journal
) -> HeldDevice:
    """What the device is; raises DeviceHeld where another claim than ``uid`` has it, or what its kind raises.

    DeviceHeld goes first, since prepare waits for it to pass. NVML does not know a GPU that a claim has taken
    from the NVIDIA driver, and MIG mode, which keeps virtual machines away, ends with the last claim.
    """

    def refuse(held: HeldDevice) -> None:
        _refuse_if_held(held, uid, journal.holders_of(held), kinds)

    try:
        found = kinds.of_name(device.name).locate(device, own, look)
    except (NvmlError, ClaimRefused, ClaimBlocked):
        refuse(HeldDevice.of(device, ""))
        raise
    refuse(found)
    return found


def with_board(found: HeldDevice, published: str | None) -> HeldDevice:
    """The device with the UUID of its board: as published where nobody can tell now.

    ``published`` is None where that was never seen. Raises HardwareChanged where the two differ.
    """
    if published is None:
        return found
    if not found.uuid:
        return replace(found, uuid=published)
    if found.uuid != published:
        raise board_changed(found.device, published, found.uuid)
    return found


def _refuse_if_held(device: HeldDevice, claim_uid: str, holders: Iterable[Entry], kinds: HeldKinds) -> None:
    """Raise DeviceHeld when another claim has the device, or part of it, for itself; only the log names it.

    One rule holds for all kinds: two devices exclude each other where they take the same of a GPU. A pod that
    was deleted by force, or two schedulers, can hand one device out twice. ``holders`` are the claims with
    something on the GPUs of the device. Claims with admin access exclude nobody, and shares of one device do
    not exclude each other.
    """
    if device.admin_access:
        return
    for entry in holders:
        for held in entry.devices:
            if entry.uid != claim_uid and not held.admin_access and _collide(device, held, kinds):
                same = held.device == device.device
                how = "is" if same else f"takes a part of {device.device} and is"
                raise DeviceHeld(
                    f"device {held.device} {how} still held by another claim",
                    "it is let go when that claim's pod has ended",
                    for_log=f"held by claim {entry.owner}",
                    holders=(entry.uid,),
                )


def _collide(device: HeldDevice, held: HeldDevice, kinds: HeldKinds) -> bool:
    """Whether the two devices cannot exist at the same time."""
    if device.device == held.device:
        is_shared = unshared_name(device.device) != device.device
        return not is_shared
    return overlap(kinds.of(device).occupies(device), kinds.of(held).occupies(held))
