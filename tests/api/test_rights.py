"""What each account of the driver may do, and what it may not, as Kubernetes judges the shipped roles."""

from collections.abc import Iterator

import pytest
import yaml

from tests.api.written import slice_of
from tests.clusters import DRIVER_NAMESPACE, ApiClient, ApiRefused, Object, RealApiServer, paths
from tests.eventually import eventually
from tools.testbed.chart import rendered_text

GROUPS = {
    **dict.fromkeys(("resourceclaims", "resourceslices", "deviceclasses"), "resource.k8s.io"),
    "daemonsets": "apps",
    "leases": "coordination.k8s.io",
    "poddisruptionbudgets": "policy",
    "roles": "rbac.authorization.k8s.io",
    "clusterroles": "rbac.authorization.k8s.io",
}
MAY = {
    "gpu-dra-kubeletplugin": (
        "get resourceclaims; patch resourceclaims/status; list watch resourceslices;"
        "create patch events;"
        "associated-node:patch resourceclaims/driver:gpu.nvidia.com"
    ),
    "gpu-dra-controller": (
        "get list watch nodes; list watch create update delete resourceslices; list watch pods;"
        "get resourceclaims; create patch events in default"
    ),
    "gpu-dra-preemptor": (
        "get list watch pods; list watch nodes; get list watch resourceclaims; create patch events;"
        "list watch resourceslices; list watch poddisruptionbudgets; create pods/eviction;"
        "create leases in gpu-dra; get update leases:gpu-dra-preemptor in gpu-dra"
    ),
    "gpu-dra-cliques": (
        "list watch patch nodes; list watch create update delete resourceslices; list watch resourceclaims;"
        "list pods; create patch events; create leases in gpu-dra;"
        "get update leases:gpu-dra-cliques in gpu-dra; get clusterroles:gpu-dra-cliques"
    ),
    "gpu-dra-page": "list resourceslices; list resourceclaims; list nodes; list events; get list pods",
    "gpu-dra-uninstall": (
        "list resourceclaims; list delete resourceslices; list nodes; create daemonsets in gpu-dra;"
        "get patch daemonsets:gpu-dra-controller in gpu-dra; get delete daemonsets:gpu-dra-retire in gpu-dra;"
        "list pods in gpu-dra"
    ),
}
NOBODY_MAY = (
    "get list secrets; get list configmaps; create delete patch pods; create pods/exec; update nodes;"
    "update patch delete resourceclaims; update resourceclaims/binding; create update deviceclasses;"
    "create serviceaccounts/token in gpu-dra; create clusterroles; impersonate users"
)
MAY_NOT = {
    "gpu-dra-kubeletplugin": (
        "list resourceclaims; create update delete resourceslices; list pods; create pods/eviction;"
        "update resourceclaims/status; associated-node:update resourceclaims/driver:gpu.nvidia.com;"
        "arbitrary-node:patch resourceclaims/driver:gpu.nvidia.com;"
        "associated-node:patch resourceclaims/driver:nic.example.com"
    ),
    "gpu-dra-controller": (
        "list resourceclaims; patch update resourceclaims/status; create events in gpu-dra;"
        "create events in kube-system; create pods/eviction"
    ),
    "gpu-dra-preemptor": (
        "update resourceclaims/status; create delete resourceslices; create leases in default;"
        "update leases:other in gpu-dra"
    ),
    "gpu-dra-cliques": (
        "get pods; get resourceclaims; patch update resourceclaims/status; create pods/eviction;"
        "patch nodes/status; get clusterroles:other; create leases in default; update leases:other in gpu-dra"
    ),
    "gpu-dra-page": "create events; update resourceclaims/status; create resourceslices;create pods/eviction",
    "gpu-dra-uninstall": (
        "delete patch daemonsets:other in gpu-dra; delete daemonsets:gpu-dra-controller in gpu-dra;"
        "create daemonsets in default; list pods; create resourceslices; create pods/eviction"
    ),
}


@pytest.fixture(scope="module")
def api(api_server: RealApiServer) -> ApiClient:
    """The API server with the rights of all programs, and the policy of the uninstallation."""
    text = rendered_text({"uninstall": {"rendered": True}}, only="uninstall-rights.yaml", hooks=True)
    api_server.api.apply([manifest for manifest in yaml.safe_load_all(text) if manifest])
    return api_server.api


def asked(rows: str) -> Iterator[tuple[str, Object]]:
    """The questions of a table: verbs, a resource with its subresource and a name, a namespace."""
    for row in rows.split(";"):
        words, _, namespace = row.partition(" in ")
        *verbs, named = words.split()
        what, _, name = named.partition(":")
        resource, _, subresource = what.partition("/")
        place = {"group": GROUPS.get(resource, ""), "resource": resource, "subresource": subresource}
        for verb in verbs:
            yield (
                f"{verb} {row.strip()}",
                {**place, "verb": verb, "name": name, "namespace": namespace.strip()},
            )


def answers(api: ApiClient, account: str, rows: str) -> dict[str, bool]:
    """What Kubernetes says to each question."""
    found = {}
    for row, attributes in asked(rows):
        spec = {
            "user": f"system:serviceaccount:gpu-dra:{account}",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:gpu-dra", "system:authenticated"],
            "resourceAttributes": attributes,
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        found[row] = bool(api.create(body)["status"]["allowed"])
    return found


@pytest.mark.parametrize("account", MAY)
def test_an_account_may_do_its_work_and_nothing_else(api: ApiClient, account: str) -> None:
    eventually("its roles are known", lambda: all(answers(api, account, MAY[account]).values()))

    # A policy limits what the process for cliques may change of a node.
    nodes = "" if account == "gpu-dra-cliques" else ";patch nodes"
    forbidden = answers(api, account, f"{NOBODY_MAY};{MAY_NOT[account]}{nodes}")

    assert [row for row, allowed in forbidden.items() if allowed] == []


def test_the_uninstallation_deletes_slices_of_the_driver_alone(
    api: ApiClient, api_server: RealApiServer
) -> None:
    other = slice_of("elsewhere")
    other["metadata"]["name"], other["spec"]["driver"] = "other", "nic.example.com"
    uninstall = api_server.api_as(api_server.mint_token(DRIVER_NAMESPACE, "gpu-dra-uninstall", "node-0"))
    api.apply([other, slice_of("elsewhere")])

    def refusal() -> str:
        try:
            uninstall.request("DELETE", paths.resource_slice("other"), query={"dryRun": "All"})
        except ApiRefused as error:
            return str(error)
        return ""

    eventually(
        "the policy is in force", refusal, lambda said: "may delete only slices with spec.driver" in said
    )
    uninstall.delete(paths.resource_slice("elsewhere-gpu"))

    assert api.find(paths.resource_slice("elsewhere-gpu")) is None
    api.delete(paths.resource_slice("other"))
