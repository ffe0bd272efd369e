"""What an explanation is made of: findings, what became of each device, and a verdict; plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["runs", "allocated", "fits", "waits", "fails", "succeeded", "failed"]
"""``runs``: nothing to explain. ``allocated``: the claim has its devices. ``fits``: a node has what it asks
for, so it is due, or waits for something other than devices. ``waits``: no node has. ``fails``: it was placed
and the node cannot prepare it. ``succeeded`` and ``failed``: the pod has ended."""

BAD = frozenset({"waits", "fails", "failed"})
"""The verdicts of what does not run and has not done its work."""

FITS = "fits"
"""Used in place of a gate for devices that nothing rules out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands in the way, or is worth knowing, and what would help."""

    kind: str
    message: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Devices of one node that one gate rules out for the same reason (kubernetes_rules.allocator.refusals).

    ``claims`` stand in their way, where claims do.
    """

    gate: str
    reason: str
    devices: tuple[str, ...]
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One request on one node. ``closed`` says why the pod cannot go there at all, whatever devices it has.

    ``pools`` are problems of pools, whose devices do not count. ``never``: the pod would not fit there if
    nobody used its devices and none were tainted.
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
    """The answer about one pod or claim."""

    kind: Literal["pod", "claim"]
    namespace: str
    name: str
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    unread: tuple[str, ...] = field(default=())
    """Kinds of objects that could not be read, so that the answer may lack something."""
