"""The picture of a GPU's illness: from the fault to taints, events and eviction, and until it is well again.

The taints follow from the driver's rules. The times are those of its loops, as the tests compare.
"""

from __future__ import annotations

from dataclasses import dataclass

from driver.devices.device import Taint
from driver.devices.region import Region
from driver.devices.taints import TAINT_BLOCKED
from driver.health.health_rules import HealthRules
from driver.health.verdict import KEYS, Kind, taints_of
from driver.health.xid_verdicts import Incident, described, verdicts_of
from driver.nvml.deadline import DEADLINE_SECONDS
from driver.nvml.pci_address import PciAddress
from tools.svg.drawing import Drawing

XID = 48
RULES = HealthRules(evict=frozenset({"needs-reset"}))
"""With these, pods that run are evicted from a GPU that has to be reset."""

CHECK_SECONDS, RESET_SECONDS = 15.0, 180.0
"""Between two checks of the GPUs, and how long a reset may take."""

HEALING = Taint(TAINT_BLOCKED, "healing", "NoSchedule")
"""While an administrator resets the GPU."""

_WIDTH, _MARGIN, _LABEL, _LANE = 960, 16, 128, 30
_LEFT = _MARGIN + _LABEL
_SCALE = (_WIDTH - _MARGIN - _LEFT) / 100
_PCI = PciAddress.parse("0000:1b:00.0")


@dataclass(frozen=True, slots=True)
class _Span:
    """What is so for a while, from and to a hundredth of the width; ``kind`` is the class of its box."""

    start: float
    end: float
    words: str
    kind: str


@dataclass(frozen=True, slots=True)
class _Tick:
    """A moment, and in two lines when it is and what happens."""

    at: float
    when: str
    what: str


@dataclass(frozen=True, slots=True)
class _Story:
    """A fault: its moments, and lanes of what goes on."""

    name: str
    ticks: tuple[_Tick, ...]
    lanes: tuple[tuple[str, tuple[_Span, ...]], ...]
    remark: str


def health() -> str:
    """Two faults, each with its lanes below one another; time runs to the right, not to scale."""
    stories = (_reset(), _hang())
    drawing = Drawing(_WIDTH, "How a GPU gets sick and well again", " ".join(map(_described, stories)))
    y = 8.0
    for story in stories:
        y = _story(drawing, story, y) + 22
    return drawing.text(y - 12)


def xid_taints() -> tuple[Taint, ...]:
    """The taints of the first fault."""
    return taints_of(verdicts_of(Incident(Region(_PCI), XID), RULES))


def _reset() -> _Story:
    taints = tuple(
        ("" if number else "Taints", (_Span(14, 82, _taint_words(one), "middle"),))
        for number, one in enumerate(xid_taints())
    )
    return _Story(
        f"A fault that needs a reset: {described(XID)}",
        (
            _Tick(4, "0 s", "XID"),
            _Tick(14, "within 1 s", "taints, event"),
            _Tick(31, "seconds later", "pod evicted"),
            _Tick(48, "an administrator", "runs gpuctl heal"),
            _Tick(64, "the GPU is unused", "reset begins"),
            _Tick(82, f"at most {RESET_SECONDS / 60:g} minutes later", "well"),
        ),
        (
            (
                "GPU",
                (
                    _Span(0, 4, "", "near"),
                    _Span(4, 64, "faulty", "far"),
                    _Span(64, 82, "reset", "machine"),
                    _Span(82, 100, "well", "near"),
                ),
            ),
            *taints,
            ("", (_Span(50, 82, _taint_words(HEALING), "middle"),)),
            ("Event", (_Span(14, 27, "GpuSick", "far"), _Span(82, 95, "GpuWell", "far"))),
            ("Running pod", (_Span(0, 31, "runs", "whole"), _Span(31, 48, "is evicted", "excluded"))),
            (
                "New pod",
                (
                    _Span(20, 82, "waits: every form of this GPU is tainted", "free"),
                    _Span(82, 100, "runs", "whole"),
                ),
            ),
        ),
        "The node configuration has evict: [needs-reset]. Without it, both taints are NoSchedule, and the "
        "pod runs on until gpuctl heal evicts it.",
    )


def _taint_words(taint: Taint) -> str:
    """``needs-reset=xid-48:NoExecute``, without the prefix that all keys have."""
    return f"{taint.key.rpartition('/')[2]}={taint.value}:{taint.effect}"


def _hang() -> _Story:
    kind: Kind = "unresponsive"
    taint = Taint(KEYS[kind], "(the NVML call)", RULES.effect(kind, "NoSchedule"))
    return _Story(
        "A fault that passes: a call of the NVIDIA driver hangs",
        (
            _Tick(4, "0 s", "hangs"),
            _Tick(
                26,
                f"within {CHECK_SECONDS + DEADLINE_SECONDS:g} s",
                f"a check waits {DEADLINE_SECONDS:g} s, then taints",
            ),
            _Tick(62, "the call returns", "by itself"),
            _Tick(82, f"within {CHECK_SECONDS:g} s", "next check"),
        ),
        (
            (
                "GPU",
                (
                    _Span(0, 4, "", "near"),
                    _Span(4, 62, "does not answer", "far"),
                    _Span(62, 100, "well", "near"),
                ),
            ),
            ("Taint", (_Span(26, 82, _taint_words(taint), "middle"),)),
            ("Event", (_Span(26, 39, "GpuSick", "far"), _Span(82, 95, "GpuWell", "far"))),
            ("Running pod", (_Span(0, 100, "runs on: nothing is evicted", "whole"),)),
            (
                "New pod",
                (_Span(32, 82, "waits, or goes to another GPU", "free"), _Span(82, 100, "runs", "whole")),
            ),
        ),
        "This needs no action. If it comes back, the GPU has to be well for longer before the taint ends.",
    )


def _described(story: _Story) -> str:
    moments = "; ".join(f"{tick.when}: {tick.what}" for tick in story.ticks)
    return f"{story.name}. {moments}. {story.remark}"


def _story(drawing: Drawing, story: _Story, y: float) -> float:
    """Draw a fault; returns the place below it."""
    drawing.words(_MARGIN, y + 18, story.name, "words head")
    top, height = y + 74, len(story.lanes) * _LANE
    for tick in story.ticks:
        x = _LEFT + tick.at * _SCALE
        drawing.curve(f"M{x:g} {top - 8:g}V{top + height:g}", "edge", width=1)
        drawing.words(x, top - 30, tick.when, "faint small")
        drawing.words(x, top - 15, tick.what, "words small")
    for place, (name, spans) in enumerate(story.lanes):
        line = top + place * _LANE
        drawing.words(_MARGIN, line + 19, name)
        for span in spans:
            _span(drawing, span, line + 2)
    drawing.words(_MARGIN, top + height + 20, story.remark, "faint small")
    return top + height + 24


def _span(drawing: Drawing, span: _Span, y: float) -> None:
    x, width = _LEFT + span.start * _SCALE, (span.end - span.start) * _SCALE
    drawing.box(x, y, width - 2, _LANE - 5, span.kind, hint=span.words)
    if span.words:
        drawing.words(x + 7, y + 17, span.words, "on" if span.kind in ("whole", "machine") else "words")
