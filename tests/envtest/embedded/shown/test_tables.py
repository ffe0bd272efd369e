"""kubectl get shows each kind with the columns and cells of Kubernetes (printers/internalversion)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from envtest.embedded.shown.cells import CELLS
from envtest.embedded.shown.tables import table_of

Object = dict[str, Any]
METADATA = {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}
AGE_PLACES = {"Age", "Created At", "TimeAdded", "Last Seen", "First Seen"}


def cells(plural: str, item: Object) -> dict[str, Any]:
    """The cells of a row by the names of their columns, without ages."""
    table = table_of(plural, [{"metadata": METADATA, **item}], {})
    [row] = table["rows"]
    names = [one["name"] for one in table["columnDefinitions"]]
    return {
        name: cell
        for name, cell in zip(names, row["cells"], strict=True)
        if name not in AGE_PLACES | {"Name"}
    }


@pytest.mark.parametrize("plural", sorted(CELLS))
def test_a_row_has_a_cell_for_each_column(plural: str) -> None:
    definition = {"scope": "Namespaced", "group": "g", "versions": [], "names": {"kind": "K"}}
    table = table_of(
        plural, [{"metadata": METADATA, "roleRef": {"kind": "Role", "name": "r"}, "spec": definition}], {}
    )
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])


SERVICE = {
    "ports": [{"port": 80, "protocol": "TCP"}],
    "clusterIPs": ["10.0.0.1"],
    "selector": {"b": "1", "a": "2"},
}
SHOWN: tuple[tuple[str, Object, Object], ...] = (
    (
        "services",
        {"spec": {**SERVICE, "type": "ClusterIP"}},
        {
            "Type": "ClusterIP",
            "Cluster-IP": "10.0.0.1",
            "External-IP": "<none>",
            "Port(s)": "80/TCP",
            "Selector": "a=2,b=1",
        },
    ),
    (
        "services",
        {"spec": {"type": "ExternalName", "externalName": "example.com"}},
        {
            "Type": "ExternalName",
            "Cluster-IP": "<none>",
            "External-IP": "example.com",
            "Port(s)": "<none>",
            "Selector": "<none>",
        },
    ),
    (
        "services",
        {
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "lb"}]}},
        },
        {
            "Type": "LoadBalancer",
            "Cluster-IP": "<none>",
            "External-IP": "2.2.2.2,lb",
            "Port(s)": "80:30080/TCP",
            "Selector": "<none>",
        },
    ),
    ("secrets", {"type": "Opaque", "data": {"a": "", "b": ""}}, {"Type": "Opaque", "Data": 2}),
    (
        "endpoints",
        {"subsets": [{"addresses": [{"ip": f"1.1.1.{n}"} for n in range(5)], "ports": [{"port": 80}]}]},
        {"Endpoints": "1.1.1.0:80,1.1.1.1:80,1.1.1.2:80 + 2 more..."},
    ),
    ("endpoints", {}, {"Endpoints": "<none>"}),
    (
        "endpointslices",
        {
            "addressType": "IPv4",
            "ports": [{"port": 80}, {"name": "b"}, {}],
            "endpoints": [{"addresses": ["1.1.1.1"]}],
        },
        {"AddressType": "IPv4", "Ports": "80,b,*", "Endpoints": "1.1.1.1"},
    ),
    (
        "endpointslices",
        {"addressType": "IPv6"},
        {"AddressType": "IPv6", "Ports": "<unset>", "Endpoints": "<unset>"},
    ),
    (
        "networkpolicies",
        {"spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}},
        {"Pod-Selector": "a"},
    ),
    ("networkpolicies", {"spec": {"podSelector": {}}}, {"Pod-Selector": "<none>"}),
    (
        "rolebindings",
        {
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "u"},
                {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                {"kind": "Group", "name": "g"},
                {"kind": "Group", "name": "h"},
            ],
        },
        {"Role": "Role/r", "Users": "u", "Groups": "g, h", "ServiceAccounts": "n/s"},
    ),
    (
        "validatingadmissionpolicybindings",
        {"spec": {"policyName": "p", "paramRef": {"name": "x"}}},
        {"PolicyName": "p", "ParamRef": "*/x"},
    ),
    (
        "validatingadmissionpolicies",
        {"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}},
        {"Validations": 1, "ParamKind": "v1/ConfigMap"},
    ),
    (
        "controllerrevisions",
        {
            "metadata": {
                **METADATA,
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
                ],
            },
            "revision": 3,
        },
        {"Controller": "daemonset.apps/d", "Revision": 3},
    ),
)


@pytest.mark.parametrize(("plural", "item", "expected"), SHOWN)
def test_cells(plural: str, item: Object, expected: Object) -> None:
    assert cells(plural, item) == expected


def test_the_restarts_of_a_pod_say_when_the_last_container_ended() -> None:
    ended = (datetime.now(UTC) - timedelta(minutes=5, seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    last = {"terminated": {"finishedAt": ended, "exitCode": 1}}
    status = {"name": "c", "restartCount": 2, "state": {"running": {}}, "ready": True, "lastState": last}
    pod = {
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }
    assert cells("pods", pod)["Restarts"] == "2 (5m1s ago)"
