"""Who still has devices from a claim that somebody deleted is named, by pod and namespace."""

import pytest

from gpuctl.fleet.pods import orphans
from tests.clusters import Object
from tests.gpuctl.fleet.published import claim


def pod(name: str, *, made: str = "", named: str = "", phase: str = "Running") -> Object:
    """A pod on a node, with a claim that was made for it or one that it names."""
    entries: list[Object] = [{"name": "own", "resourceClaimTemplateName": "gpu"}] if made else []
    entries += [{"name": "named", "resourceClaimName": named}] if named else []
    statuses = [{"name": "own", "resourceClaimName": made}] if made else []
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"nodeName": "node-a", "resourceClaims": entries},
        "status": {"phase": phase, "resourceClaimStatuses": statuses},
    }


@pytest.mark.parametrize("how", [{"made": "train-gpu"}, {"named": "shared"}])
def test_a_pod_whose_claim_is_gone_is_named(how: dict[str, str]) -> None:
    (name,) = how.values()

    found = orphans([pod("train", **how)], [claim("other", "gpu-0000-17-00-0", pods=("train",))])

    assert found == (f"pod team/train on node-a has devices from claim {name}, which is deleted",)


def test_a_claim_that_was_made_anew_under_its_name_is_another_one() -> None:
    again = claim("train-gpu", "gpu-0000-17-00-0", pods=("victim",))
    assert len(orphans([pod("train", made="train-gpu")], [again])) == 1


def test_a_pod_that_has_its_claim_or_has_ended_or_waits_is_not() -> None:
    has = claim("train-gpu", "gpu-0000-17-00-0", pods=("train",))
    waits = pod("waits", named="none")
    del waits["spec"]["nodeName"]
    ended = pod("ended", named="none", phase="Succeeded")

    assert orphans([pod("train", made="train-gpu"), waits, ended, pod("plain")], [has]) == ()
