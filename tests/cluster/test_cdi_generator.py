"""What a container gets is what NVIDIA's own generator gives it, but for what is named and has a reason."""

from pathlib import Path

import pytest

from fakegpu.driver_files.layouts import LAYOUTS, Layout
from tests.cluster.cdi_generator import FakeNode
from tests.plugin import InstalledDriver
from tools.conformance.cdi_edits import ACCEPTED, EditDifference, calls_in_order, differences, taken_apart
from tools.hardware.nvidia_ctk import compare_specs

PAGE = Path(__file__).resolve().parents[2] / "docs/compatibility.md"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_container_gets_what_the_generator_gives_and_every_difference_is_named(
    layout: Layout, tmp_path: Path
) -> None:
    node = FakeNode.build(tmp_path, layout)
    theirs, ours = node.theirs(), node.ours()
    ((their_gpu,), (our_gpu,)) = theirs["devices"], ours["devices"]

    found: list[EditDifference] = []
    for their, our in (
        (theirs["containerEdits"], ours["containerEdits"]),
        (their_gpu["containerEdits"], our_gpu["containerEdits"]),
    ):
        found += differences(taken_apart(their), taken_apart(our))
    unnamed = [one for one in found if not any(difference.covers(one) for difference in ACCEPTED)]
    unseen = [one.shown for one in ACCEPTED if not any(map(one.covers, found))]

    assert len(taken_apart(theirs["containerEdits"])) > 50, "the generator found a driver"
    assert unnamed == []
    assert unseen == [], "what is no difference any more needs no reason"
    assert calls_in_order(ours["containerEdits"]) == calls_in_order(theirs["containerEdits"])


def test_verify_finds_no_other_difference_than_those_that_are_named(tmp_path: Path) -> None:
    node = FakeNode.build(tmp_path, LAYOUTS[0])
    found = compare_specs(node.generator(), InstalledDriver.below(node.root), node.sysfs, [node.gpu])
    assert (found.status, found.details) == ("ok", ())


def test_the_page_shows_every_difference_with_its_reason() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows if row in {f"| {one.shown} | {one.reason} |" for one in ACCEPTED}] == [
        f"| {one.shown} | {one.reason} |" for one in ACCEPTED
    ]
