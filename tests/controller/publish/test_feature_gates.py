"""An API server that drops fields gets only what means the same without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.publish.feature_gates import COUNTER_FIELDS, SHARING_FIELDS, storable
from driver.devices.gpu_policy import GpuPolicy, MigOffer, SharedOffer
from tests.controller.mig_node import DYNAMIC, SERVED, SHARED, SLICED, WHOLE, names, offers
from tests.driver.kinds.passthrough.seen_nodes import FIRST as GPU
from tests.driver.kinds.passthrough.seen_nodes import SECOND as OTHER_GPU
from tests.driver.kinds.passthrough.seen_nodes import function, node, offered

FIRST, SECOND = "gpu-0000-1b-00-0", "gpu-0000-43-00-0"
NOTHING: frozenset[str] = frozenset()
ALL_TIERS = replace(DYNAMIC, shared=(SLICED, SERVED))


@pytest.mark.parametrize("form", [WHOLE, DYNAMIC, SHARED, ALL_TIERS])
def test_where_everything_is_stored_everything_is_offered(form: GpuPolicy) -> None:
    assert storable(offers(form), NOTHING) == offers(form)
    assert storable(offers(form), frozenset({"taints"})) == offers(form)


@pytest.mark.parametrize(
    ("form", "left"),
    [
        (DYNAMIC, [SECOND, FIRST]),
        (ALL_TIERS, [SECOND, FIRST]),
        (GpuPolicy("shared", shared=(SERVED, SLICED)), [f"{FIRST}-mps-4", f"{SECOND}-mps-4"]),
        (GpuPolicy("partitions", MigOffer("dynamic")), []),
        (SHARED, [f"{FIRST}-ts-4", f"{SECOND}-ts-4"]),
    ],
)
def test_without_counters_one_form_that_is_all_of_a_gpu_is_left(form: GpuPolicy, left: list[str]) -> None:
    found = storable(offers(form), frozenset({"consumesCounters"}))

    assert names(found.devices) == left
    assert found.counter_sets == ()
    assert all((one.counter_set, one.consumes) == ("", {}) for one in found.devices)


@pytest.mark.parametrize(
    "form", [SHARED, GpuPolicy("shared", shared=(SharedOffer("MPS", 4, fractional=True),)), ALL_TIERS]
)
def test_where_sharing_is_not_stored_nothing_is_shared(form: GpuPolicy) -> None:
    found = storable(offers(form), SHARING_FIELDS)

    assert names(found.devices) == [one.name for one in offers(form).devices if not one.policies]
    assert found.counter_sets == offers(form).counter_sets


def test_with_neither_whole_gpus_are_left() -> None:
    assert names(storable(offers(ALL_TIERS), SHARING_FIELDS | COUNTER_FIELDS).devices) == [SECOND, FIRST]


def test_without_counters_the_whole_gpu_is_left_and_not_the_one_for_a_virtual_machine() -> None:
    beside = offered(node(function(GPU), function(OTHER_GPU)), "passthrough: true")
    found = storable(beside, COUNTER_FIELDS)
    assert names(found.devices) == [SECOND, FIRST]
    assert all(not one.consumed_sets for one in found.devices)


def test_without_counters_gpus_that_go_together_are_left_only_where_neither_has_a_form_of_its_own() -> None:
    together = node(function(GPU, iommu_group=7), function(OTHER_GPU, iommu_group=7))
    both = f"{FIRST}-0000-43-00-0-vfio"
    shared = "shared: {strategy: TimeSlicing, shares: 4}, passthrough: true"
    assert names(storable(offered(together, "passthrough: true"), COUNTER_FIELDS).devices) == [SECOND, FIRST]
    assert names(storable(offered(together, "offer: passthrough"), COUNTER_FIELDS).devices) == [both]
    assert both not in names(storable(offered(together, shared), COUNTER_FIELDS).devices)
    assert names(storable(offered(together, shared), COUNTER_FIELDS | SHARING_FIELDS).devices) == [both]
