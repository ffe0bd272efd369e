"""Which claims a pod uses, and whose a claim is."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.pod_claims import (
    ClaimEntry,
    claim_entries,
    controlling_pod,
    extended_claim,
    is_made_for,
)

Json = dict[str, Any]

NAMED = {"name": "named", "resourceClaimName": "shared"}
OWN = {"name": "own", "resourceClaimTemplateName": "gpus"}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}


def pod(*entries: Json, **status: Any) -> Json:
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"resourceClaims": list(entries)},
        "status": status,
    }


def claim(*owners: Json) -> Json:
    return {"metadata": {"name": "c", "ownerReferences": list(owners)}}


def test_a_pod_names_a_claim_or_the_template_of_one() -> None:
    made = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "p-own-x"}]}
    assert claim_entries(pod(NAMED, OWN, **made)) == [
        ClaimEntry("named", "shared", None),
        ClaimEntry("own", "p-own-x", "gpus"),
    ]


def test_a_claim_is_still_to_be_made_until_the_status_has_its_entry() -> None:
    assert claim_entries(pod(OWN)) == [ClaimEntry("own", None, "gpus")]
    assert claim_entries(pod(OWN, resourceClaimStatuses=[{"name": "own"}])) == []


def test_a_pod_without_claims_has_none() -> None:
    assert claim_entries({"spec": {}}) == []
    assert extended_claim({"spec": {}}) is None


def test_the_claim_of_extended_resources_stands_in_the_status() -> None:
    assert extended_claim(pod(extendedResourceClaimStatus={"resourceClaimName": "e"})) == "e"


@pytest.mark.parametrize(
    ("owners", "made"),
    [
        ([OWNER], True),
        ([{**OWNER, "controller": False}], False),
        ([{**OWNER, "uid": "before"}], False),
        ([{**OWNER, "kind": "Job", "apiVersion": "batch/v1"}], False),
        ([], False),
    ],
)
def test_a_claim_was_made_for_the_pod_that_controls_it(owners: list[Json], made: bool) -> None:
    assert is_made_for(claim(*owners), pod()) is made
    assert (controlling_pod(claim(*owners)) == ("p", "u")) is made
