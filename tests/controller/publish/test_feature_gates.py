"""An API server that drops fields gets only what means the same without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.publish.feature_gates import COUNTER_FIELDS, SHARING_FIELDS, storable
from driver.devices.gpu_policy import GpuPolicy, MigOffer, SharedOffer
from tests.controller.mig_node import DYNAMIC, SERVED, SHARED, SLICED, WHOLE, names, offers

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
