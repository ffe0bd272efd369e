"""The bench of the scheduler publishes what it says it does, and knows when a form costs too much."""

from __future__ import annotations

from collections import Counter

import click
import pytest

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.simulate.cluster import load_classes
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.defaults import defaulted_claim_spec
from tools.bench.scheduler import (
    MODES,
    Medians,
    Mode,
    Numbers,
    Pace,
    broken,
    medians,
    pods_with_claims,
    slices,
)

FORMS = {
    "whole": {"gpu": 8},
    "layout": {"mig": 56},
    "layout-by-need": {"mig": 56},
    "dynamic-1g": {"gpu": 8, "mig": 56},
    "dynamic-1g-2g-3g": {"gpu": 8, "mig": 8 * (7 + 3 + 2)},
    "dynamic": {"gpu": 8, "mig": 8 * (7 + 3 + 2 + 1)},
}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_each_node_publishes_what_its_mode_says_in_slices_that_the_api_server_takes(mode: Mode) -> None:
    found = slices(mode, ["a", "b"])

    for node in ("a", "b"):
        mine = [one["spec"] for one in found if one["spec"]["nodeName"] == node]
        assert {spec["pool"]["name"] for spec in mine} == {f"{node}/gpu.nvidia.com"}
        published = [device for spec in mine for device in spec.get("devices", ())]
        assert Counter(device["attributes"]["type"]["string"] for device in published) == FORMS[mode.name]
        counted = {"consumesCounters" in device for device in published}
        assert counted == {mode.name.startswith("dynamic")}
    with EmbeddedApiServer() as server:
        for one in found:
            server.create("/apis/resource.k8s.io/v1/resourceslices", one)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_claims_of_the_pods_get_a_device_of_their_mode(mode: Mode) -> None:
    claims, pods = pods_with_claims(mode.device_class, 2)
    allocator = Allocator(slices(mode, ["a"]), load_classes(()), ())

    for claim, pod in zip(claims, pods, strict=True):
        name = claim["metadata"]["name"]
        assert [one["resourceClaimName"] for one in pod["spec"]["resourceClaims"]] == [name]
        stored = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": defaulted_claim_spec(claim["spec"]),
        }
        assert allocator.allocate({"metadata": {"name": "a"}}, [stored])


def test_numbers_are_read_from_a_list_and_nothing_else_is() -> None:
    assert Numbers().convert("10,30", None, None) == (10, 30)
    for text in ("", "ten", "0", "10,-1", "10;30"):
        with pytest.raises(click.BadParameter):
            Numbers().convert(text, None, None)


def test_a_form_that_takes_more_than_it_may_is_named_with_the_size_of_the_cluster() -> None:
    whole, cheap, dear = (Medians(ms, ms, ms, 1.0) for ms in (1.0, 1.2, 1.7))
    found = {10: {"whole": whole, "layout": cheap}, 100: {"whole": whole, "layout": dear}}

    assert broken(found) == [
        "layout takes 1.70 of the processor time of whole GPUs on 100 nodes, more than 1.6"
    ]


def test_several_rounds_give_their_median_and_their_spread() -> None:
    rounds = [Pace(bound=10, seconds=seconds, processor_seconds=seconds / 10) for seconds in (1.0, 4.0, 2.0)]

    assert medians(rounds) == Medians(20.0, 10.0, 40.0, 5.0)


def test_a_pace_is_told_by_the_second_and_by_the_pod() -> None:
    pace = Pace(bound=50, seconds=2.0, processor_seconds=0.5)

    assert (pace.pods_per_second, pace.processor_ms_per_pod) == (25.0, 10.0)
