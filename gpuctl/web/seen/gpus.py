"""A node as the page shows it: what of each GPU is given away, to whom, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuctl.status.fleet import Taint
from gpuctl.status.pool_counters import PoolCounters, counters_in
from gpuctl.web.seen.holders import Holding, holdings
from gpuctl.web.seen.published import Form, Published
from kubernetes_rules.allocator.held import Held
from kubernetes_rules.errors import RuleError

Object = Mapping[str, Any]
State = Literal["held", "free", "excluded", "unavailable"]
"""``excluded``: the GPU is taken in another form. ``unavailable``: tainted, or its pool cannot be used."""

FREE, SEVERAL = "free", "several"


@dataclass(frozen=True, slots=True)
class FormView:
    """A form of a GPU, who has it, and for how many more claims there is room where it is shared."""

    form: Form
    state: State
    holders: tuple[Holding, ...]
    claims_left: int | None = None


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU in short. ``given`` is the part of it that claims have, 0 to 1; ``use`` says in which form.

    ``taints`` are those of any of its devices, of which it has ``forms``, and ``tainted`` have one.
    ``blocked``: no form of it takes claims. ``since`` is when the first of the taints
    that are there was added, RFC 3339, empty where no slice says.
    """

    gpu: str
    index: int | None
    use: str
    given: float
    claims: int
    forms: int
    tainted: int
    blocked: bool
    taints: tuple[Taint, ...]
    since: str = ""


@dataclass(frozen=True, slots=True)
class TierView:
    """How the devices of one tier of one node are, as ``gpuctl status`` counts them."""

    tier: str
    devices: int = 0
    held: int = 0
    free: int = 0
    at_once: int = 0
    excluded: int = 0
    unavailable: int = 0
    claims: int = 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node in short. ``problem`` says why nothing of its pool can be given, None if it can.

    ``remarks`` are words about the Node itself, such as ``cordoned``. ``not_ready`` are claims whose status
    says that a device of theirs is not ready, and why. ``held``, ``free`` and ``unavailable`` are names of
    devices; a shared one may be both held and free.
    """

    name: str
    product: str | None
    driver_version: str | None
    problem: str | None
    gpus: tuple[GpuView, ...]
    tiers: tuple[TierView, ...]
    withheld: tuple[tuple[str, str], ...]
    not_ready: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...] = ()
    held: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    unavailable: frozenset[str] = frozenset()
    holdings: frozenset[Holding] = frozenset()

    @property
    def is_sick(self) -> bool:
        """Whether something is to be told of it."""
        return bool(self.problem or self.not_ready or any(gpu.taints for gpu in self.gpus))

    @property
    def given(self) -> float:
        """The GPUs that claims have, parts of them added up."""
        return sum(gpu.given for gpu in self.gpus)


def node_view(read: Published, claims: Sequence[Object], node: Object | None) -> NodeView:
    """The node with these claims on it. Raises AllocationFailed for a malformed claim."""
    counters = counters_in(read.pools, held_by(claims))
    forms = form_views(read, claims, counters)
    by_gpu: dict[str, list[FormView]] = {}
    for one in forms:
        by_gpu.setdefault(one.form.gpu, []).append(one)
    return NodeView(
        read.name,
        read.product,
        read.driver_version,
        counters.problem,
        tuple(_gpu(gpu, read.indexes.get(gpu), members, counters) for gpu, members in by_gpu.items()),
        _tiers(forms, counters),
        read.withheld,
        tuple(
            (holder.claim, f"{one.form.name}: {holder.ready}")
            for one in forms
            for holder in one.holders
            if holder.ready is not None
        ),
        remarks_of(node),
        frozenset(one.form.name for one in forms if one.state == "held"),
        frozenset(one.form.name for one in forms if is_free(one, counters)),
        frozenset(one.form.name for one in forms if one.form.blocked or counters.problem),
        frozenset(holder for one in forms for holder in one.holders),
    )


def broken_node(name: str, error: RuleError, node: Object | None) -> NodeView:
    """A node whose slices or claims cannot be read."""
    return NodeView(name, None, None, error.what, (), (), (), (), remarks_of(node))


def held_by(claims: Iterable[Object]) -> Held:
    """What these claims hold; raises AllocationFailed for a malformed one."""
    held = Held()
    for claim in claims:
        held.add(claim)
    return held


def form_views(read: Published, claims: Sequence[Object], counters: PoolCounters) -> tuple[FormView, ...]:
    """Every form with its holders and its state."""
    holders: dict[tuple[str, str], list[Holding]] = {}
    for claim in claims:
        for one in holdings(claim):
            holders.setdefault((one.pool, one.device), []).append(one)
    return tuple(_form(one, tuple(holders.get((one.pool, one.name), ())), counters) for one in read.forms)


def _form(form: Form, holders: tuple[Holding, ...], counters: PoolCounters) -> FormView:
    taken = any(not one.looks_on for one in holders)
    left = counters.claims_left(form.name)
    state: State = "held" if taken else "free"
    if counters.problem or form.blocked:
        state = state if taken else "unavailable"
    elif not taken and not counters.fits(form.name):
        state = "excluded"
    return FormView(form, state, holders, 0 if left is not None and (form.blocked or not left) else left)


def _gpu(gpu: str, index: int | None, forms: Sequence[FormView], counters: PoolCounters) -> GpuView:
    held = [one for one in forms if one.state == "held"]
    uses = {one.form.use for one in held}
    taints = dict.fromkeys(taint for one in forms for taint in one.form.taints)
    return GpuView(
        gpu,
        index,
        FREE if not uses else uses.pop() if len(uses) == 1 else SEVERAL,
        min(1.0, sum(one.form.weight * _part(one, counters) for one in held)),
        len({holder.claim for one in held for holder in one.holders if not holder.looks_on}),
        len(forms),
        sum(bool(one.form.taints) for one in forms),
        bool(counters.problem) or all(one.form.blocked for one in forms),
        tuple(taints),
        min((one.form.since for one in forms if one.form.since), default=""),
    )


def _part(one: FormView, counters: PoolCounters) -> float:
    """The part of a held device that claims have: all of it, unless it is shared."""
    device = counters.devices.get(one.form.name)
    if device is None or not device.allow_multiple:
        return 1.0
    taken = counters.held.capacity_taken(device.id)
    parts = [
        taken.get(name, 0) / capacity.value.nanos
        for name, capacity in device.capacities.items()
        if capacity.value.nanos
    ]
    return min(1.0, max(parts, default=1.0))


def _tiers(forms: Sequence[FormView], counters: PoolCounters) -> tuple[TierView, ...]:
    by_tier: dict[str, list[FormView]] = {}
    for one in forms:
        by_tier.setdefault(one.form.tier, []).append(one)
    return tuple(_tier(tier, members, counters) for tier, members in sorted(by_tier.items()))


def _tier(tier: str, forms: Sequence[FormView], counters: PoolCounters) -> TierView:
    states = [one.state for one in forms]
    free = [one.form.name for one in forms if is_free(one, counters)]
    return TierView(
        tier,
        len(forms),
        states.count("held"),
        len(free),
        counters.at_once(free),
        states.count("excluded"),
        sum(one.form.blocked or bool(counters.problem) for one in forms),
        sum(not holder.looks_on for one in forms for holder in one.holders),
    )


def is_free(one: FormView, counters: PoolCounters) -> bool:
    """Whether a claim that asks for no amount could have it now; a shared one may be held as well."""
    if counters.problem or one.form.blocked:
        return False
    if one.claims_left is None:
        return one.state == "free"
    return one.claims_left > 0 and one.state != "excluded"


def remarks_of(node: Object | None) -> tuple[str, ...]:
    """What is to be said of a Node: whether it is cordoned, and whether its kubelet says it is ready."""
    if node is None:
        return ()
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), None)
    cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    return ("cordoned",) * cordoned + ("not ready",) * (ready in ("False", "Unknown"))
