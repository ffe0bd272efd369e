"""What somebody can do who has stolen the driver's token of one node: nothing to the other nodes' claims.

Kubernetes 1.36 checks by itself that a driver writes the status of claims of its own node only. Older
versions do not: there the right ``resourceclaims/status`` is all it takes. Such a version is played by
granting the thief what the check of 1.36 asks for, so that nothing but the policy stands in the way.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from envtest.client import paths
from envtest.client.api import APPLY, ApiClient
from envtest.client.errors import ApiRefused
from envtest.real.api_server import RealApiServer
from gpuctl.demo.driver_node import DRIVER_NAMESPACE
from tests.api.written import event_of, slice_of
from tests.eventually import eventually

Object = dict[str, Any]

DRIVER = "gpu.nvidia.com"
OWN, ELSEWHERE = "node-0", "elsewhere"
OTHER_DRIVER = "nic.example.com"
RBAC = "rbac.authorization.k8s.io/v1"
OLDER = "status-writes-of-older-versions"
# What a driver may not be given: in 1.36 and later these are asked for beside resourceclaims/status.
CHECKED_SINCE_1_36 = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/driver"],
        "verbs": ["arbitrary-node:patch", "arbitrary-node:update"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/binding"],
        "verbs": ["patch", "update"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["update"]},
]


def result(node: str, driver: str = DRIVER) -> Object:
    return {"request": "r", "driver": driver, "pool": f"{node}/{driver}", "device": "gpu-0"}


def entry(node: str, driver: str = DRIVER) -> Object:
    """What a driver says of the device of ``result``."""
    allocated = {key: value for key, value in result(node, driver).items() if key != "request"}
    return {**allocated, "data": {"uuid": "MIG-of-the-thief"}}


class Claims:
    """The claims of a namespace, allocated as a scheduler would."""

    def __init__(self, cluster: RealApiServer, namespace: str) -> None:
        self.api = cluster.api
        self._namespace = namespace

    def make(self, name: str, *results: Object, devices: tuple[Object, ...] = ()) -> str:
        """A claim with these allocated devices, and what others say of them; the path of its status."""
        request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
        stored = self.api.create(claim, self._namespace)
        path = f"{paths.resource_claim(name, self._namespace)}/status"
        if results:
            stored["status"] = {"allocation": {"devices": {"results": list(results)}}}
            term = {"key": "metadata.name", "operator": "In", "values": [results[0]["pool"].split("/")[0]]}
            selector = {"nodeSelectorTerms": [{"matchFields": [term]}]}
            stored["status"]["allocation"]["nodeSelector"] = selector
            self.api.replace(path, stored)
        if devices:
            tell(self.api, path, *devices, manager="others")
        return path

    def status(self, path: str) -> Object:
        """The status as it is stored."""
        return dict(self.api.get(path).get("status") or {})


def tell(api: ApiClient, path: str, *devices: Object, manager: str = "gpu-dra-kubeletplugin") -> Object:
    """Apply entries of status.devices, as the plugin does."""
    name = path.split("/")[-2]
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "status": {"devices": list(devices)},
    }
    query = {"fieldManager": manager, "force": "true"}
    return api.request("PATCH", path, body, content_type=APPLY, query=query)


def token_of(cluster: RealApiServer, account: str) -> ApiClient:
    """Somebody with the token that the account's pod on the node has."""
    return cluster.api_as(cluster.mint_token(DRIVER_NAMESPACE, account, OWN))


@pytest.fixture
def claims(api_server: RealApiServer, namespace: str) -> Claims:
    return Claims(api_server, namespace)


@pytest.fixture
def thief(api_server: RealApiServer) -> ApiClient:
    """Has the plugin's token of the own node."""
    return token_of(api_server, "gpu-dra-kubeletplugin")


@pytest.fixture
def older(api_server: RealApiServer, claims: Claims, thief: ApiClient) -> Iterator[None]:
    """Rights with which the API server's own check lets everything pass, so that only the policy is left."""
    subject = {"kind": "ServiceAccount", "name": "gpu-dra-kubeletplugin", "namespace": "gpu-dra"}
    made = [
        {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": OLDER}, "rules": CHECKED_SINCE_1_36},
        {
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": OLDER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OLDER},
            "subjects": [subject],
        },
    ]
    api = api_server.api
    api.apply(made)
    path = claims.make("tells-when-rights-are-known", result(ELSEWHERE))

    patch = partial(refused, thief, "PATCH", path, {"status": {"devices": [entry(ELSEWHERE)]}})
    words = "of claims that have a device of this node"
    eventually("the policy is in force", patch, lambda said: words in said)
    yield
    for one in made:
        api.delete(api.path_of(one))


def refused(api: ApiClient, method: str, path: str, body: Object) -> str:
    """What the API server says why a request is forbidden; in a dry run."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    with pytest.raises(ApiRefused) as caught:
        api.request(method, path, body, content_type=kind, query={"dryRun": "All"})
    assert caught.value.status in {http.client.FORBIDDEN, http.client.UNPROCESSABLE_ENTITY}
    return str(caught.value)


def test_a_node_tells_of_its_devices_in_the_status_of_its_claims(claims: Claims, thief: ApiClient) -> None:
    path = claims.make("own", result(OWN))

    tell(thief, path, entry(OWN))

    [told] = claims.status(path)["devices"]
    assert told.items() >= entry(OWN).items()


@pytest.mark.parametrize("version", ["this version", "an older one"])
def test_a_stolen_token_cannot_write_the_status_of_another_nodes_claims(
    claims: Claims, thief: ApiClient, version: str, request: pytest.FixtureRequest
) -> None:
    if version == "an older one":
        request.getfixturevalue("older")
    path = claims.make("foreign", result(ELSEWHERE), devices=(entry(ELSEWHERE),))
    before = claims.status(path)

    for devices in ([], [entry(ELSEWHERE) | {"data": {"uuid": "x"}}], [entry(OWN)]):
        with pytest.raises(ApiRefused):
            thief.request(
                "PATCH", path, {"status": {"devices": devices}}, content_type="application/merge-patch+json"
            )
    with pytest.raises(ApiRefused):
        tell(thief, path, entry(ELSEWHERE) | {"data": {"uuid": "x"}})

    assert claims.status(path) == before


@pytest.mark.usefixtures("older")
def test_a_claim_that_has_no_device_yet_is_no_nodes(claims: Claims, thief: ApiClient) -> None:
    path = claims.make("waiting")
    taken = {"status": {"allocation": {"devices": {"results": [result(OWN)]}}, "devices": [entry(OWN)]}}

    assert "of claims that have a device of this node" in refused(thief, "PATCH", path, taken)


@pytest.mark.usefixtures("older")
@pytest.mark.parametrize(
    "status",
    [
        {"allocation": None, "devices": None},
        {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]},
    ],
    ids=["deallocated", "reserved"],
)
def test_allocation_and_reservation_of_its_own_claims_are_not_the_nodes_to_write(
    claims: Claims, thief: ApiClient, status: Object
) -> None:
    path = claims.make("own", result(OWN))

    said = refused(thief, "PATCH", path, {"status": status})

    assert "only status.devices" in said


@pytest.mark.usefixtures("older")
def test_of_its_own_claims_it_writes_only_entries_of_its_own_devices(
    claims: Claims, thief: ApiClient
) -> None:
    """Before and after an entry of another driver, and of a device of ours that lies elsewhere."""
    foreign = (entry(OWN, OTHER_DRIVER), entry("fabric"))
    path = claims.make("own", result(OWN), result(OWN, OTHER_DRIVER), result("fabric"), devices=foreign)

    for devices in (
        [],
        [foreign[0]],
        [foreign[1]],
        [*foreign, entry(OWN), foreign[0] | {"device": "other"}],
        [foreign[0] | {"data": {"a": 1}}, foreign[1]],
    ):
        said = refused(thief, "PATCH", path, {"status": {"devices": devices}})
        assert "only entries of status.devices with driver gpu.nvidia.com and pool node-0" in said or (
            "must be an allocated device" in said
        )
    tell(thief, path, entry(OWN))

    told = [
        {key: one[key] for key in ("driver", "pool", "device", "data")}
        for one in claims.status(path)["devices"]
    ]
    assert len(told) == 3
    assert all(one in told for one in (*foreign, entry(OWN)))


@pytest.mark.usefixtures("older")
def test_a_token_that_names_no_node_writes_no_status(api_server: RealApiServer, claims: Claims) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    account = paths.service_account("gpu-dra-kubeletplugin", "gpu-dra")
    token = api_server.api.request("POST", f"{account}/token", body)["status"]["token"]
    path = claims.make("own", result(OWN))

    said = refused(api_server.api_as(token), "PATCH", path, {"status": {"devices": [entry(OWN)]}})

    assert "names no node" in said


def test_the_driver_writes_slices_of_its_own_node_only(api_server: RealApiServer) -> None:
    controller = token_of(api_server, "gpu-dra-controller")
    own = controller.create(slice_of(OWN))
    foreign = api_server.api.create(slice_of(ELSEWHERE))
    own_path, foreign_path = (paths.resource_slice(o["metadata"]["name"]) for o in (own, foreign))

    own["spec"]["pool"]["generation"] = 2
    assert controller.replace(own_path, own)["spec"]["pool"]["generation"] == 2
    foreign["spec"]["pool"]["generation"] = 2
    for method, path, body in (
        ("POST", paths.resource_slice(), slice_of("another")),
        ("POST", paths.resource_slice(), slice_of(None)),
        ("PUT", foreign_path, foreign),
        ("DELETE", foreign_path, {}),
    ):
        assert f"the driver on node {OWN} may" in refused(controller, method, path, body)
    other = slice_of(OWN)
    other["spec"]["driver"] = OTHER_DRIVER
    said = refused(controller, "POST", paths.resource_slice(), other)
    assert 'only slices with spec.driver "gpu.nvidia.com"' in said
    controller.delete(own_path)

    assert api_server.api.find(own_path) is None
    api_server.api.delete(foreign_path)


def test_a_token_that_names_no_node_writes_no_slice_and_no_event(api_server: RealApiServer) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    account = paths.service_account("gpu-dra-controller", "gpu-dra")
    token = api_server.api.request("POST", f"{account}/token", body)["status"]["token"]

    for path, written in ((paths.resource_slice(), slice_of(OWN)), (paths.event(), event_of(OWN))):
        assert "names no node" in refused(api_server.api_as(token), "POST", path, written)


def test_a_slice_is_of_the_nodes_own_pool(api_server: RealApiServer) -> None:
    """One of another node's pool would make the devices of that node look taken, or out of date."""
    controller = token_of(api_server, "gpu-dra-controller")
    stolen = slice_of(OWN)
    stolen["spec"]["pool"]["name"] = f"{ELSEWHERE}/{DRIVER}"

    assert "only slices of the pool node-0/gpu.nvidia.com" in refused(
        controller, "POST", paths.resource_slice(), stolen
    )


HUGE = "1e2147483647"
"""With it the scheduler calculates for ever, and places no pod of anybody."""

TYPED = {"type": {"string": "gpu"}}
COUNTED = [{"counterSet": "gpu", "counters": {"memory": {"value": HUGE}}}]
POLICED = {"value": "1", "requestPolicy": {"default": "1m", "validValues": ["1m"]}}
SHARED = {"attributes": TYPED, "allowMultipleAllocations": True, "capacity": {"memory": POLICED}}


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ({}, "needs the attribute type"),
        ({"attributes": {}}, "needs the attribute type"),
        ({"attributes": {"uuid": {"string": "GPU-1"}}}, "needs the attribute type"),
        ({"attributes": {"type": {"int": 1}}}, "needs the attribute type"),
        ({"attributes": {"type": {"string": "fpga"}}}, "needs the attribute type"),
        ({"attributes": TYPED | {"profile": {"int": 1}}}, "has a different type"),
        ({"attributes": TYPED | {"driverVersion": {"string": "580"}}}, "has a different type"),
        ({"attributes": TYPED | {f"{DRIVER}/profile": {"int": 1}}}, "without this domain"),
        ({"attributes": TYPED, "capacity": {f"{DRIVER}/memory": {"value": "1"}}}, "without this domain"),
        ({"attributes": TYPED, "capacity": {"memory": {"value": HUGE}}}, "a capacity of a device"),
        ({"attributes": TYPED, "consumesCounters": COUNTED}, "a counter is not"),
        (SHARED, "a capacity of a device"),
    ],
)
def test_no_device_of_a_stolen_tokens_slice_leaves_selectors_without_an_answer(
    api_server: RealApiServer, device: Object, said: str
) -> None:
    """The scheduler would give up on every pod whose class reads what is not there, or hang, on all nodes."""
    controller = token_of(api_server, "gpu-dra-controller")
    lacking = slice_of(OWN)
    lacking["spec"]["devices"].append({"name": "gpu-1", **device})

    assert said in refused(controller, "POST", paths.resource_slice(), lacking)


def test_the_largest_slice_that_kubernetes_takes_costs_the_policy_less_than_its_limit(
    api_server: RealApiServer,
) -> None:
    largest = slice_of(OWN)
    names = [f"{'domain.' * 8}example/{'a' * 30}{number:02}" for number in range(31)]
    amounts = {name: {"value": f"{2**49 - 1}Ki"} for name in names}
    largest["spec"]["devices"] = [
        {"name": f"gpu-{number}", "attributes": TYPED, "capacity": amounts} for number in range(128)
    ]
    controller = token_of(api_server, "gpu-dra-controller")

    assert controller.request("POST", paths.resource_slice(), largest, query={"dryRun": "All"})


def test_events_are_reported_as_the_own_nodes_and_nobody_elses_are_changed(
    api_server: RealApiServer, namespace: str, thief: ApiClient
) -> None:
    events = paths.event(namespace=namespace)
    for item in (event_of(OWN), event_of(ELSEWHERE), event_of(OWN, "kubelet")):
        item["involvedObject"]["namespace"] = namespace
        if item["reportingInstance"] == OWN and item["reportingComponent"] != "kubelet":
            stored = thief.request("POST", events, item)
            path = f"{events}/{stored['metadata']['name']}"
            assert thief.patch(path, {"count": 2})["count"] == 2
            assert "only events that it reports itself" in refused(
                thief, "PATCH", path, {"reportingInstance": ELSEWHERE}
            )
            continue
        assert "only events that it reports itself" in refused(thief, "POST", events, item)
        api_server.api.request("POST", events, item)
        path = f"{events}/{item['metadata']['name']}"
        assert "only events that it reports itself" in refused(thief, "PATCH", path, {"count": 2})


def test_the_controllers_events_go_into_default_and_nowhere_else(
    api_server: RealApiServer, namespace: str
) -> None:
    controller = token_of(api_server, "gpu-dra-controller")
    about_node = event_of(OWN, "gpu-dra-controller")
    about_node["involvedObject"] = {"apiVersion": "v1", "kind": "Node", "name": OWN}

    stored = controller.request("POST", paths.event(), about_node)
    path = paths.event(stored["metadata"]["name"])
    assert controller.patch(path, {"count": 2})["count"] == 2
    api_server.api.delete(path)

    assert "cannot create resource" in refused(
        controller, "POST", paths.event(namespace=namespace), about_node
    )
    assert "cannot create resource" in refused(
        controller, "POST", paths.event(namespace="kube-system"), about_node
    )
