"""The parts of an explanation as plain data: a verdict, findings, and what rules out each device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["runs", "allocated", "fits", "waits", "fails", "succeeded", "failed"]
"""``runs``: nothing to explain. ``allocated``: the claim has its devices. ``fits``: a node has what it asks
for, so it will be placed soon, or waits for something other than devices. ``waits``: no node has it now.
``fails``: it was placed, and cannot start there. ``succeeded``, ``failed``: it has ended."""

BAD = frozenset({"waits", "fails", "failed"})
"""The verdicts of objects that neither run nor have done their work."""

FITS = "fits"
"""Used in place of a gate for devices that nothing rules out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is in the way or worth knowing, and what would help."""

    kind: str
    message: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Devices of one node that one gate rules out for the same reason (kubernetes_rules.allocator.refusals).

    ``claims`` hold these devices, or what they would need.
    """

    gate: str
    reason: str
    devices: tuple[str, ...]
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One request on one node. ``closed`` says why the pod cannot go there, whatever devices the node has.

    ``pools`` are problems of pools; nothing is allocated from these. ``never``: the pod would not even fit
    if nobody used the node's devices and none of them were tainted.
    """

    node: str
    outcomes: tuple[Outcome, ...]
    pools: tuple[str, ...] = ()
    closed: str | None = None
    never: bool = False

    @property
    def fitting(self) -> int:
        """How many devices nothing rules out."""
        return sum(len(one.devices) for one in self.outcomes if one.gate == FITS)


@dataclass(frozen=True, slots=True)
class RequestReport:
    """One request, or sub-request as ``request/sub``, of one claim."""

    claim: str
    request: str
    wants: str
    nodes: tuple[NodeReport, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer about one pod, claim or PodGroup."""

    kind: Literal["pod", "claim", "podgroup"]
    namespace: str
    name: str
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    unread: tuple[str, ...] = ()
    """Kinds of objects that this user may not read, so that the answer may lack something."""
