"""Decides what a claim needs on this node before anything is touched: pure, and every refusal first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driver.claims.allocation import AllocatedDevice, Claim, ClaimConfig
from driver.claims.opaque import KINDS as OPAQUE_KINDS
from driver.claims.opaque import SHARED_GPU, Document, decode_for, is_for
from driver.errors import ClaimRefused
from driver.kinds.kind import DeviceName
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.claim_call import PreparedDevice
from kubeletplugin.kubelet.wire.names import cdi_device_name, cdi_qualified_name
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from kubeletplugin.sharing.plan import wish_of


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

    Whoever wrote it counts on limits. Any other that is for devices of another kind has no effect, as with
    NVIDIA's driver.
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
    return PlannedDevice(device, name, cdi_device, wish_of(device, name, config, of_class), config)


def _decoded(claim: Claim, device: AllocatedDevice, config: ClaimConfig, name: DeviceName) -> Document | None:
    """The configuration if it is for this kind of device.

    One for all requests that is of another kind is meant for the others; one that names the request is
    a mistake.
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
    """The physical GPUs that are concerned, each once, in the order in which they are locked.

    A device that lies on no GPU stands for itself, as in the journal: else two claims could take it at once.
    """
    return tuple(sorted({place for one in devices for place in one.name.gpus or (one.name.device,)}))


def answer(devices: tuple[HeldDevice, ...]) -> tuple[PreparedDevice, ...]:
    """The kubelet's answer from a journal entry, so that a retry answers the same."""
    return tuple(
        PreparedDevice(
            (held.request.partition("/")[0],),
            held.pool,
            held.allocated_name,
            (cdi_qualified_name(held.cdi_device),),
            held.share_id,
        )
        for held in devices
    )
