"""A review denies what can never be prepared, with every field path, and has no opinion of other things."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.webhook.review import review
from controller.webhook.subject import ReviewMalformed
from tests.clusters import Object
from tests.controller.webhook.reviewed import (
    asked,
    claim,
    config,
    device_class,
    errors,
    parameters,
    request,
    template,
    warnings,
)

WRONG = config(parameters(sharing={"strategy": "Fair"}))
VERSIONS = ["v1", "v1beta2", "v1beta1"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("make", "path"),
    [(claim, "spec.devices"), (template, "spec.spec.devices"), (device_class, "spec")],
    ids=["claim", "template", "class"],
)
def test_a_wrong_value_is_denied_with_its_path_in_the_object(version: str, make: Any, path: str) -> None:
    answer = review(asked(make(config(parameters()), WRONG, version=version)))

    assert answer.document == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "7d0a",
            "allowed": False,
            "status": {
                "status": "Failure",
                "code": 422,
                "reason": "Invalid",
                "message": f"{path}.config[1].opaque.parameters.sharing.strategy: "
                "must be one of TimeSlicing, MPS",
            },
        },
    }


def test_what_is_for_another_driver_is_not_looked_at() -> None:
    foreign = config({"kind": "Whatever"}, driver="compute-domain.nvidia.com")

    assert errors(claim(foreign)) == ()
    assert warnings(claim(foreign, {})) == ()
    assert errors(claim(foreign, WRONG))[0].startswith("spec.devices.config[1].")


def test_a_request_named_for_two_kinds_of_devices_is_denied() -> None:
    both = (config(parameters(), "a"), config(parameters("MigDeviceConfig"), "a"))

    (error,) = errors(claim(*both, requests=[request("a", "any"), request("b")]))

    assert error.startswith("spec.devices.config[1].requests: a is named by")


def test_subrequests_may_each_have_a_kind_of_their_own() -> None:
    both = [{"name": "w", "deviceClassName": "x"}, {"name": "p", "deviceClassName": "y"}]
    listed, backwards = {"name": "a", "firstAvailable": both}, {"name": "a", "firstAvailable": both[::-1]}
    each = (config(parameters(), "a/w"), config(parameters("MigDeviceConfig"), "a/p"))
    for_all = config(parameters(), "a")

    assert errors(claim(*each, requests=[listed])) == ()
    assert errors(claim(*each[1:], for_all, requests=[listed])) == ()  # a/w can still be prepared
    assert errors(claim(*each[1:], for_all, requests=[backwards])) == ()
    assert len(errors(claim(*each, config(parameters("VfioDeviceConfig"), "a"), requests=[listed]))) == 1


def test_an_update_that_leaves_what_is_wrong_as_it_was_passes() -> None:
    stored = device_class(WRONG)
    labelled = copy.deepcopy(stored)
    labelled["metadata"]["labels"] = {"team": "a"}

    assert review(asked(labelled, "UPDATE", stored)).allowed
    assert not review(asked(device_class(WRONG), "UPDATE", device_class(config(parameters())))).allowed
    assert not review(asked(device_class(WRONG, WRONG), "UPDATE", stored)).allowed


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT"},
        {"subResource": "status"},
        {"kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceSlice"}},
        {"kind": {"group": "resource.k8s.io", "version": "v2", "kind": "ResourceClaim"}},
        {"kind": {"group": "example.com", "version": "v1", "kind": "ResourceClaim"}},
    ],
)
def test_other_operations_and_kinds_pass(change: Object) -> None:
    body = asked(claim(WRONG))
    body["request"].update(change)

    assert review(body).document["response"] == {"uid": "7d0a", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"},
        {**asked(claim()), "request": "x"},
        {**asked(claim()), "request": {**asked(claim())["request"], "uid": "x" * 129}},
        {**asked(claim()), "request": {**asked(claim())["request"], "uid": ""}},
        {**asked(claim()), "request": {"uid": "x"}},
        asked({**claim(), "spec": []}),
        asked({**claim(), "spec": {"devices": {"config": {}}}}),
        asked({**claim(), "spec": {"devices": {"config": ["x"]}}}),
        asked({**claim(), "spec": {"devices": {"requests": [{"name": 1}]}}}),
        asked(claim({**config(parameters()), "requests": [1]})),
        asked(claim({**config(parameters()), "requests": ["r"] * 33})),
        asked(claim(*[config(parameters())] * 33)),
        asked(claim(requests=[request("r")] * 33)),
        asked(claim(requests=[{"name": "r", "firstAvailable": [{}] * 33}])),
    ],
)
def test_what_is_no_review_is_said_to_be_none(body: Any) -> None:
    with pytest.raises(ReviewMalformed):
        review(body)


def test_the_largest_claim_that_the_api_stores_is_judged() -> None:
    leaves = [{"name": f"s{number}", "deviceClassName": "own-class"} for number in range(8)]
    asked_for = [{"name": f"r{number}", "firstAvailable": leaves} for number in range(32)]
    shares = [{"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": n}} for n in range(32)]
    configs = [config(parameters(sharing=sharing)) for sharing in shares]

    warnings = review(asked(claim(*configs, requests=asked_for))).document["response"]["warnings"]

    assert warnings[-1] == f"and {256 * 31 - 16} more"


def test_a_message_is_bounded_and_fit_for_a_terminal() -> None:
    hostile = parameters() | {f"\x1b[31m\n{number:03}\ud800": 1 for number in range(500)}

    message = review(asked(claim(config(hostile)))).document["response"]["status"]["message"]

    assert message.isprintable()
    assert "\\x1b[31m\\n000\\ud800: unknown field" in message
    assert message.endswith("and 468 more")
    assert len(message) < 32 * 512


WORDS = ["spec", "devices", "config", "requests", "opaque", "driver", "parameters", "name", "metadata"]
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.sampled_from([claim(), template(), device_class()]))
def test_whatever_the_object_is_it_is_judged_or_refused(value: Any, stored: Object) -> None:
    try:
        answer = review(asked({**stored, "spec": value}))
    except ReviewMalformed:
        return
    json.dumps(answer.document)


@given(json_values, st.booleans())
def test_whatever_the_parameters_are_they_are_judged(value: Any, named: bool) -> None:
    document = {**parameters(), **value} if isinstance(value, dict) else value

    answer = review(asked(claim(config(document, *(["gpu"] if named else [])))))

    assert answer.allowed == (not answer.findings.errors)
