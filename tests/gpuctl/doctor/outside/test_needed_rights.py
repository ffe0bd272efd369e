"""The rights that the doctor asks for are those that the driver is given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.doctor.outside.programs import Program
from gpuctl.doctor.outside.rights import NEEDED
from gpuctl.doctor.outside.seen import Right

DEPLOY = Path(__file__).resolve().parents[4] / "deploy"
GRANTS = DEPLOY / "rbac.yaml"


def granted(account: str) -> Iterator[Right]:
    """What the shipped roles of an account allow."""
    for item in yaml.safe_load_all(GRANTS.read_text()):
        if item["kind"] in ("Role", "ClusterRole") and item["metadata"]["name"] == account:
            for rule in item["rules"]:
                yield from rights_of(rule, item["metadata"].get("namespace", ""))


def rights_of(rule: dict[str, Any], namespace: str) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    yield Right(verb, group, resource, namespace, name)


@pytest.mark.parametrize("program", NEEDED)
def test_the_doctor_asks_for_what_the_roles_grant(program: Program) -> None:
    assert set(NEEDED[program]) == set(granted(f"gpu-dra-{program}"))
