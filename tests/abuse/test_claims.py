"""Allocations that no scheduler would write are refused, and whoever comes next gets his devices."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.abuse.hostile import CONFIGS, TEXTS, VALUES
from tests.abuse.shown import assert_fit_to_be_shown
from tests.examples import examples
from tests.gpus import DRIVER_NAME, DriverError, gpu_device_name
from tests.kubeletplugin.fake_node import POOL, FakeNode

DEVICES = st.sampled_from(
    [
        "gpu-0000-1b-00-0",
        "gpu-0000-1b-00-0-ts-4",
        "gpu-0000-1b-00-0-mps-mem",
        "gpu-0000-1b-00-0-mig-1g-10gb-6",
        "gpu-0000-1b-00-0-mig-7g-80gb-0",
        "gpu-0000-43-00-0-mig-1g-10gb-6-mps-2",
        "gpu-0000-43-00-0-static-1g-10gb-6",
        "gpu-ffff-ff-1f-7",
        "gpu-0000-1b-00-0-mig-1g-10gb-99999999999999999999",
        "gpu-0000-1b-00-0\n",
    ]
)


def _either(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(right, right, right, right, TEXTS, VALUES)


RESULTS = st.lists(
    st.fixed_dictionaries(
        {
            "request": _either(st.sampled_from(["gpu", "gpu/a"])),
            "driver": _either(st.just(DRIVER_NAME)),
            "pool": _either(st.just(POOL)),
            "device": _either(DEVICES),
        },
        optional={
            "shareID": _either(st.uuids().map(str)),
            "adminAccess": _either(st.booleans()),
            "consumedCapacity": _either(
                st.dictionaries(
                    st.sampled_from(["shares", "memory", "x"]),
                    _either(st.sampled_from(["1", "4", "10Gi", "1E", "-5", "1n"])),
                    max_size=2,
                )
            ),
            "tolerations": VALUES,
        },
    ),
    max_size=4,
)
STATUSES = st.one_of(
    st.fixed_dictionaries(
        {
            "allocation": st.fixed_dictionaries(
                {"devices": st.fixed_dictionaries({"results": RESULTS}, optional={"config": CONFIGS})}
            )
        }
    ),
    st.fixed_dictionaries({"allocation": st.fixed_dictionaries({"devices": VALUES})}),
    st.fixed_dictionaries({"allocation": VALUES}),
    VALUES,
)


@settings(max_examples=examples(600))
@given(status=STATUSES)
def test_any_status_is_carried_out_or_refused_and_the_next_claim_gets_the_gpu(
    node: FakeNode, status: Any
) -> None:
    ref = node.claim("hostile", 0)
    node.api[ref.namespace, ref.name]["status"] = status
    try:
        node.prepare(ref)
    except DriverError as error:
        assert_fit_to_be_shown(str(error))
        entry = node.journal.get(ref.uid)
        assert entry is None or not entry.holds
    node.reconciler.restore_specs()
    node.reconciler.run_once()
    assert node.unprepare(ref) is None

    honest = node.claim_devices("honest", *map(gpu_device_name, node.gpus))
    assert len(node.prepare(honest)) == len(node.gpus)
    node.unprepare(honest)
    for one in (ref, honest):
        node.journal.forget(one.uid)
