"""A GPU that is full of shares has the memory that all of them are promised."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from envtest.client.waiting import fresh_namespace
from fakegpu.memory.cuda import OutOfMemory
from tests.flow.claims import request as asked_for
from tests.flow.memory_scene import TIMES, cuda, gpu_of_pod, limits_of, memory_pod, start_held
from tests.flow.mig_scene import template
from tests.flow.several_machines import installed_on

RULES = "version: v1\nrules: [{shared: {strategy: TimeSlicing, shares: 4}}]\n"
PODS = ("one", "two", "three", "four")


def test_the_last_share_of_a_full_gpu_has_its_memory_to_the_last_byte(request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        cluster, (driver,) = stack.enter_context(
            installed_on(request.config, ("l4-quad",), ("tiers",), RULES, pretend_cgroups=True, times=TIMES)
        )
        namespace = stack.enter_context(fresh_namespace(cluster.api))
        template(cluster, namespace, "share", asked_for(device_class="shared-memory"))
        for pod in PODS:
            start_held(cluster, namespace, memory_pod(pod, "share"))

        assert len({gpu_of_pod(driver, namespace, pod) for pod in PODS}) == 1
        clients = [stack.enter_context(cuda(driver, namespace, pod)) for pod in PODS]
        for pod, client in zip(PODS, clients, strict=True):
            limits = limits_of(driver, namespace, pod)
            assert limits is not None
            client.allocate(limits.hard_bytes)
            with pytest.raises(OutOfMemory, match=r"uses \d+ of \d+ bytes"):
                client.allocate(1)
