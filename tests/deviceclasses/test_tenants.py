"""The tenants of the scenario have a quota for every class."""

import pytest

from tests.deviceclasses.shipped_classes import DEFAULT, OPT_IN, ROOT, objects

FOLDER = ROOT / "deploy" / "scenarios" / "tenants"
DEVICES = ".deviceclass.resource.k8s.io/devices"
TIERS = {"large", "medium", "mig-small", "mig-medium", "mig-large", "shared-timesliced", "shared-mps"}


@pytest.mark.parametrize("tenant", ["team-vision", "team-notebooks"])
def test_every_class_has_a_quota_and_only_tiers_are_open(tenant: str) -> None:
    found = [one for one in objects(FOLDER / f"{tenant}.yaml") if one["kind"] == "ResourceQuota"]
    (hard,) = (one["spec"]["hard"] for one in found if one["metadata"]["name"] == "gpus")
    allowed = {name.removesuffix(DEVICES): most for name, most in hard.items() if name.endswith(DEVICES)}

    assert set(allowed) == {*DEFAULT, *OPT_IN}
    assert {name for name, most in allowed.items() if most != "0"} <= TIERS
