"""What a pod as a whole asks for follows from its containers where it does not say it."""

from typing import Any

from kubernetes_rules.pod_resources import container_total, defaulted_pod_resources
from tests.clusters import Object


def container(restart: str = "", **resources: Any) -> Object:
    return {"name": "c", "resources": resources, **({"restartPolicy": restart} if restart else {})}


def defaulted(*containers: Object, **resources: Any) -> Object:
    return defaulted_pod_resources({"containers": containers, "resources": resources})


def total(spec: Object) -> dict[str, str]:
    return {name: str(amount) for name, amount in container_total(spec, "requests").items()}


def test_containers_and_sidecars_run_together_and_init_containers_one_by_one() -> None:
    sidecar = container("Always", requests={"cpu": "500m"})
    setup = container(requests={"cpu": "3", "memory": "1Gi"})
    main = container(requests={"cpu": "1", "nvidia.com/gpu": "2"})

    before = total({"initContainers": [setup, sidecar], "containers": [main, main]})
    after = total({"initContainers": [sidecar, setup], "containers": [main, main]})

    assert before == {"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "4"}
    assert after == {"cpu": "3500m", "memory": "1Gi", "nvidia.com/gpu": "4"}


def test_a_pod_that_says_nothing_of_itself_gets_nothing() -> None:
    spec = {"containers": [container(requests={"cpu": "1"})]}

    assert defaulted_pod_resources(spec) == {}
    assert defaulted(*spec["containers"], requests={}) == {"requests": {}}


def test_a_pod_requests_what_its_containers_request_and_else_what_it_limits() -> None:
    own = {"limits": {"cpu": "4", "memory": "1Gi"}}
    main = container(requests={"cpu": "1", "nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "1"})

    found = defaulted(main, main, **own)

    assert found == {**own, "requests": {"cpu": "2", "memory": "1Gi"}}


def test_a_pod_limits_what_all_of_its_containers_limit() -> None:
    limited = container(limits={"cpu": "1"}, requests={"cpu": "1"})
    free = container(requests={"cpu": "1"})

    all_limit = defaulted(limited, limited, requests={"cpu": "1"})
    raised = defaulted(limited, requests={"cpu": "3"})
    one_does_not = defaulted(limited, free, requests={"cpu": "2"})

    assert all_limit == {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    assert raised == {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    assert one_does_not == {"requests": {"cpu": "2"}}


def test_huge_pages_of_containers_are_limits_and_requests_of_their_pod() -> None:
    pages = container(limits={"hugepages-2Mi": "4Mi"}, requests={"hugepages-2Mi": "4Mi"})

    found = defaulted(pages, pages, limits={"cpu": "1"})

    assert found["limits"] == {"cpu": "1", "hugepages-2Mi": "8Mi"}
    assert found["requests"] == {"cpu": "1", "hugepages-2Mi": "8Mi"}
