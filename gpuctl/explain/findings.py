"""An explanation as plain data: a verdict, findings, what rules out each device, and whose end would help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpuctl.cli.cluster import Object

Verdict = Literal["runs", "allocated", "fits", "waits", "fails", "succeeded", "failed"]
"""``runs``: nothing to explain. ``allocated``: the claim has its devices. ``fits``: a node has what it asks
for, so it will be placed soon, or waits for something other than devices. ``waits``: no node has it now.
``fails``: it was placed, and cannot start there. ``succeeded``, ``failed``: it has ended."""

BAD = frozenset({"waits", "fails", "failed"})
"""The verdicts of objects that neither run nor have done their work."""

FITS = "fits"
"""Used in place of a gate for devices that nothing rules out."""

COSTLY = "costly"
"""The kind of the finding that the selectors took more time than an answer may take."""

SICK = "sick"
"""The kind of a finding about a device that a claim has and cannot use."""

Kind = Literal["Pod", "ResourceClaim"]


@dataclass(frozen=True, slots=True)
class ExplainedObject:
    """What an explanation is about."""

    kind: Kind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is in the way or worth knowing."""

    kind: str
    message: str
    remedy: str | None = None
    """What would help."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Devices of one node that one gate rules out for the same reason."""

    gate: str
    """The check that rules the devices out (see docs/gpuctl.md); ``fits`` where nothing does."""
    reason: str
    devices: tuple[str, ...]
    claims: tuple[str, ...] = ()
    """Claims that hold these devices, or what they would need."""
    other_form: bool = False
    """Other devices of the node are nearer to what the request selects."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One request on one node."""

    node: str
    outcomes: tuple[Outcome, ...]
    pools: tuple[str, ...] = ()
    """Problems of pools, whose devices do not count."""
    closed: str | None = None
    """Why the pod cannot go there, whatever devices the node has."""
    never: bool = False
    """It would not fit there even if no claim used its devices and none were tainted."""

    @property
    def fitting(self) -> int:
        """How many devices nothing rules out."""
        return sum(len(one.devices) for one in self.outcomes if one.gate == FITS)


@dataclass(frozen=True, slots=True)
class RequestReport:
    """One request of one claim on each node."""

    claim: str
    request: str
    """Its name; that of an alternative is ``request/sub``."""
    wants: str
    nodes: tuple[NodeReport, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget."""

    name: str
    allows: int
    """How many evictions it allows now."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that would have to end."""

    namespace: str
    name: str
    node: str
    priority: int
    movable: bool
    """Whether its owner allows that it is evicted for others."""
    budgets: tuple[Budget, ...]
    since: str | None = None
    """When it started, RFC 3339."""
    owner: str | None = None
    """Its controller, as KIND/NAME."""


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """Pods whose end lets the pod fit on a node."""

    node: str
    pods: tuple[Leaving, ...]
    gains: tuple[str, ...]
    """The devices that it would get then, as POOL/DEVICE."""
    refused: int
    """How many of them a budget forbids to evict now."""
    exact: bool
    """Without it none of them can be left out, but a set that costs less may exist."""


@dataclass(frozen=True, slots=True)
class PolicyVictims:
    """Whose end would help if only some pods may go."""

    policy: Literal["lower-priority", "movable", "any"]
    """Pods of lower priority, pods with the annotation gpu.nvidia.com/movable: "true", or any pod."""
    why: str
    """Why there are none; empty if there are."""
    victims: tuple[NodeVictims, ...]
    """The best set of pods on each node, the best node first."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `gpuctl explain` says of one pod or claim."""

    object: ExplainedObject
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    policies: tuple[PolicyVictims, ...] = ()
    """Whose end would let a waiting pod have its devices."""
    unread: tuple[str, ...] = ()
    """Kinds of objects that this user may not read, so that the answer may lack something."""

    @property
    def is_bad(self) -> bool:
        """Whether it neither runs nor has done its work, or has a sick device."""
        return self.verdict in BAD or any(one.kind == SICK for one in self.findings)


@dataclass(frozen=True, slots=True)
class ExplanationList:
    """What `gpuctl explain` says of several objects."""

    items: tuple[Explanation, ...]


def explanation(
    kind: Kind,
    item: Object,
    verdict: Verdict,
    summary: str,
    findings: Iterable[Finding] = (),
    requests: tuple[RequestReport, ...] = (),
) -> Explanation:
    """The explanation of an object."""
    metadata = item["metadata"]
    about = ExplainedObject(kind, str(metadata["namespace"]), str(metadata["name"]))
    return Explanation(about, verdict, summary, tuple(findings), requests)
