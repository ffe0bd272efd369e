"""The record of a group survives what other versions write into it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.devices.vfio.binder import FunctionRecord, GroupRecord
from tests.driver.hardware.pci_trees import at

GPU = FunctionRecord("0000:81:00.0", "nvidia", "", "vfio-pci", "probing")


def test_what_is_written_is_read_again() -> None:
    written = GroupRecord((), {"node": "/dev/vfio/7"}).put(GPU).written

    assert GroupRecord.read(json.loads(json.dumps(written))) == GroupRecord((GPU,), {"node": "/dev/vfio/7"})


def test_a_step_and_a_field_of_a_newer_version_count_as_a_change() -> None:
    written = GroupRecord((GPU,), {}).written
    (one,) = written["functions"]
    newer = {"functions": [{**one, "done": "resetting", "reset": True}]}

    (read,) = GroupRecord.read(newer).functions
    assert read.may_have_changed
    assert (read.driver, read.vfio) == ("nvidia", "vfio-pci")


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
    )
)
def test_nonsense_is_no_function(functions: object) -> None:
    assert GroupRecord.read({"functions": functions}).of(at("0000:81:00.0")) is None
