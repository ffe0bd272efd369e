"""Kueue's own code charges claims for our classes as the documentation says, with the samples' very files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters import Object, defaulted_claim_spec, go_programs, plan_node

PROJECT = Path(__file__).resolve().parents[2]
QUEUES = PROJECT / "deploy/examples/queues"
CONFIGS = PROJECT / "deploy/examples/node-config"
GIB = 2**30


def documents(file: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


CLASSES = [
    one
    for file in sorted((PROJECT / "deviceclasses").rglob("*.yaml"))
    for one in documents(file)
    if one["kind"] == "DeviceClass"
]


def slices(machine: str = "hgx-h100", config: str = "all-tiers") -> list[Object]:
    """What a node publishes."""
    return list(plan_node(machine, "node-0", CONFIGS / f"{config}.yaml").slices)


def ask(
    *requests: Object,
    configuration: Path = QUEUES / "configuration.yaml",
    published: list[Object] | None = None,
    limits: Object | None = None,
) -> Object:
    """What Kueue answers to a pod with one claim of these requests, or with these limits."""
    (given,) = documents(configuration)
    spec = defaulted_claim_spec({"devices": {"requests": list(requests)}})
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": "research"},
        "spec": {"spec": spec},
    }
    resources = {"requests": limits, "limits": limits} if limits else {"claims": [{"name": "gpu"}]}
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}] if requests else []
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "research"},
        "spec": {
            "resourceClaims": entries,
            "containers": [{"name": "main", "image": "ubuntu:24.04", "resources": resources}],
        },
    }
    question = {
        "configuration": given,
        "queues": documents(QUEUES / "queues.yaml"),
        "classes": CLASSES,
        "templates": [template],
        "slices": slices() if published is None else published,
        "pod": pod,
    }
    program = go_programs("kueue") / "charges"
    done = subprocess.run([program], input=json.dumps(question), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: Object = json.loads(done.stdout)
    return answer


def exactly(device_class: str, **more: Any) -> Object:
    return {"name": "gpu", "exactly": {"deviceClassName": device_class, **more}}


def charges(*requests: Object, **how: Any) -> dict[str, str]:
    """What is charged; the names of quota without their common beginning."""
    answer = ask(*requests, **how)
    assert answer["refused"] == []
    return {name.removeprefix("gpu.nvidia.com/"): amount for name, amount in answer["charges"].items()}


def refusal(*requests: Object, **how: Any) -> str:
    (text,) = ask(*requests, **how)["refused"]
    return str(text)


@pytest.mark.parametrize(
    ("device_class", "quota"),
    [
        *(("large", "large"), ("medium", "medium"), ("mig-small", "mig-small")),
        *(("mig-medium", "mig-medium"), ("mig-large", "mig-large")),
        *(("shared-timesliced", "shared"), ("shared-mps", "shared")),
    ],
)
def test_a_device_is_charged_to_the_quota_of_its_tier(device_class: str, quota: str) -> None:
    assert charges(exactly(device_class, count=2)) == {quota: "2"}


def test_the_requests_of_a_claim_are_charged_together() -> None:
    large, more, share = exactly("large"), exactly("large", count=3), exactly("shared-mps")
    named = [{**one, "name": name} for one, name in zip((large, more, share), "abc", strict=True)]

    assert charges(*named) == {"large": "4", "shared": "1"}


def test_a_share_that_is_asked_for_in_limits_is_charged_as_one_that_is_claimed() -> None:
    assert charges(limits={"nvidia.com/gpu.shared": "2"}) == {"shared": "2"}


def test_what_is_in_limits_and_in_no_mapping_is_charged_by_its_own_name() -> None:
    assert charges(limits={"nvidia.com/gpu": "2"}) == {"nvidia.com/gpu": "2"}


def test_a_class_without_a_quota_is_turned_down() -> None:
    text = refusal(exactly("gpu.nvidia.com"))

    assert "DeviceClass gpu.nvidia.com is not mapped in DRA configuration" in text


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "large"}]},
            "FirstAvailable device selection is not supported",
        ),
        (exactly("large", allocationMode="All"), "AllocationMode 'All' is not supported"),
        (exactly("large", adminAccess=True), "AdminAccess is not supported"),
    ],
)
def test_what_kueue_cannot_count_is_turned_down(request_: Object, words: str) -> None:
    assert words in refusal(request_)


def test_a_selector_that_no_published_device_meets_is_turned_down() -> None:
    def memory(amount: str) -> Object:
        expression = f"device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{amount}')) >= 0"
        return exactly("large", selectors=[{"cel": {"expression": expression}}])

    assert charges(memory("70Gi")) == {"large": "1"}
    assert "insufficient matching devices for CEL selector" in refusal(memory("100Gi"))
    nine = {**memory("70Gi"), "exactly": {**memory("70Gi")["exactly"], "count": 9}}
    assert "8 device(s) match in the cluster but 9 requested" in refusal(nine)


def test_partitions_are_charged_the_memory_of_the_largest_that_fits() -> None:
    by_memory = QUEUES / "by-memory.yaml"

    small = charges(exactly("mig-small"), configuration=by_memory)
    medium = charges(exactly("mig-medium", count=2), configuration=by_memory)

    assert small == {"partition-memory": "9984Mi"}
    assert medium == {"partition-memory": "40192Mi"}


def test_a_share_is_charged_the_memory_that_it_asks_for_in_the_steps_of_its_gpu() -> None:
    by_memory, published = QUEUES / "by-memory.yaml", slices("l4-quad", "memory-shares")

    def share(**capacity: Any) -> dict[str, str]:
        return charges(exactly("shared-mps", **capacity), configuration=by_memory, published=published)

    asked = share(capacity={"requests": {"memory": "5Gi"}})
    assert asked == {"shared-memory": "5Gi"}
    odd = share(capacity={"requests": {"memory": "5000Mi"}})
    (device,) = {
        json.dumps(one["capacity"]["memory"]["requestPolicy"], sort_keys=True)
        for stored in published
        for one in stored["spec"].get("devices", ())
        if one.get("allowMultipleAllocations")
    }
    step = json.loads(device)["validRange"]["step"]
    assert step == "1Gi"
    assert odd == {"shared-memory": "5Gi"}


def test_a_share_that_is_counted_by_number_has_no_memory_to_charge() -> None:
    by_memory, published = QUEUES / "by-memory.yaml", slices(config="mps")

    assert charges(exactly("shared-mps"), configuration=by_memory, published=published) == {
        "shared-memory": "0"
    }


def test_a_counter_says_nothing_about_the_size_of_a_device(tmp_path: Path) -> None:
    (given,) = documents(QUEUES / "by-memory.yaml")
    mapping = given["resources"]["deviceClassMappings"][0]
    selector = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
    counter = {"driver": "gpu.nvidia.com", "name": "memory-slice-0", "deviceSelector": selector}
    mapping |= {"deviceClassNames": ["large", "mig-small"], "sources": [{"counter": counter}]}
    given["resources"]["deviceClassMappings"] = [mapping]
    file = tmp_path / "counters.yaml"
    file.write_text(yaml.safe_dump(given))

    for device_class in ("large", "mig-small"):
        assert charges(exactly(device_class), configuration=file) == {"large": "1"}
