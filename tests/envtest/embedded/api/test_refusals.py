"""What a request says wrongly is refused, and no request breaks the server."""

import http.client
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.process.log import configure
from envtest.embedded.api.patching import APPLY, JSON_PATCH, MERGE, STRATEGIC
from envtest.embedded.api.wire import MOST_BODY_BYTES
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.api.api_calls import CLAIMS, PODS, Answer, ask, claim, pod
from tests.faults import NOTED

LONG = "1" * 5000
SICK = {"metadata": {"name": "sick", "namespace": "default", "labels": 5, "resourceVersion": "1"}}
"""What no request can store: a selector that looks at its labels fails."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        running.create(PODS, pod("p"))
        running.create(CLAIMS, claim("c"))
        yield running


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", f"/p:{LONG}/proxy/", None, 400),
        ("GET", f"?limit={LONG}", None, 400),
        ("GET", f"?resourceVersion={LONG}", None, 400),
        ("PUT", "/p", {"metadata": {"name": "p", "resourceVersion": LONG}}, 500),
        ("POST", "", b'{"spec": {"priority": %s}}' % LONG.encode(), 400),
        ("POST", "", b"[" * 200_000, 400),
        ("POST", "", b" " * (MOST_BODY_BYTES + 1), 413),
        ("POST", "", pod("q", runtimeClassName="none"), 403),
        ("POST", "", pod("q", serviceAccountName="none"), 403),
        ("PATCH", "/p", {"spec": {"$retainKeys": 5}}, 400),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    server: EmbeddedApiServer, method: str, path: str, body: Any, code: int
) -> None:
    kind = STRATEGIC if method == "PATCH" else "application/json"
    answer = ask(server, method, PODS + path, body, content_type=kind)

    assert (answer.code, answer.body["code"], answer.body["kind"]) == (code, code, "Status")
    assert server.objects("pods")[0]["metadata"]["name"] == "p"


def test_what_nobody_had_thought_of_is_answered_logged_and_noted() -> None:
    lines = io.StringIO()
    configure("info", lines)
    with EmbeddedApiServer() as server:
        server.store.put(("", "pods"), ("default", "sick"), SICK)
        answer = ask(server, "GET", f"{PODS}?labelSelector=app%3Da")
        after = ask(server, "GET", f"{PODS}/sick")

    (fault,) = NOTED.take()
    assert (answer.code, answer.body["reason"], after.code) == (500, "InternalError", 200)
    assert answer.body["message"].startswith("Internal error occurred: AttributeError: ")
    assert answer.body["details"]["causes"][0]["message"].startswith("AttributeError: ")
    assert fault.doing.startswith("GET /api/v1/namespaces/default/pods?labelSelector")
    logged = json.loads(lines.getvalue().splitlines()[0])
    assert logged["level"] == "error"
    assert "Traceback" in logged["exception"]


def test_a_watch_that_fails_in_the_middle_is_cut_and_noted() -> None:
    with EmbeddedApiServer() as server:
        server.create(PODS, pod("p"))
        server.store.put(("", "pods"), ("default", "sick"), SICK)
        path = f"{PODS}?watch=1&labelSelector=app%3Da&timeoutSeconds=60"
        with pytest.raises(http.client.IncompleteRead):
            ask(server, "GET", path)

    (fault,) = NOTED.take()
    assert fault.doing == f"watch {PODS}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    (
        *("metadata", "spec", "status", "name", "labels", "annotations", "finalizers", "ownerReferences"),
        *("containers", "resources", "limits", "tolerations", "nodeSelector", "managedFields", "kind"),
        *("apiVersion", "preconditions", "uid", "resourceVersion", "gracePeriodSeconds", "dryRun", "target"),
        *("deleteOptions", "propagationPolicy", "$patch", "$retainKeys", "$setElementOrder/containers"),
        *("$deleteFromPrimitiveList/finalizers", "op", "path", "value", "from", "devices", "requests"),
        *("exactly", "firstAvailable", "selectors", "cel", "expression", "config", "constraints"),
    )
)
LIKE_OBJECTS = st.recursive(
    JSON | st.just("p"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
PARAMETERS = st.sampled_from(
    (
        *("gracePeriodSeconds", "timeoutSeconds", "limit", "continue", "resourceVersion", "labelSelector"),
        *("resourceVersionMatch", "fieldSelector", "dryRun", "fieldValidation", "fieldManager", "force"),
        *("propagationPolicy", "sendInitialEvents", "includeObject"),
    )
)
VALUES = st.sampled_from(
    ("", "0", "1", "-1", "abc", "All", "a=b", "a in (b)", "a>1", "true", "Exact", "Warn")
)
TARGETS = st.sampled_from(
    (PODS, f"{PODS}/p", f"{PODS}/p/status", f"{PODS}/p/binding", f"{PODS}/p/eviction", CLAIMS, f"{CLAIMS}/c")
)
TYPES = st.sampled_from((APPLY, JSON_PATCH, MERGE, STRATEGIC, "application/json"))


@given(
    method=st.sampled_from(("GET", "POST", "PUT", "PATCH", "DELETE")),
    path=TARGETS,
    query=st.dictionaries(PARAMETERS, VALUES | st.text(max_size=3), max_size=3),
    body=st.none() | LIKE_OBJECTS,
    content_type=TYPES,
)
def test_no_request_makes_the_server_fail_at_itself(
    server: EmbeddedApiServer, method: str, path: str, query: dict[str, str], body: Any, content_type: str
) -> None:
    words = "&".join(f"{name}={quote(value)}" for name, value in query.items())

    answer: Answer = ask(server, method, f"{path}?{words}", body, content_type=content_type)

    assert answer.code != 500 or "Internal error occurred" not in answer.body["message"]
    assert NOTED.take() == []
    if method == "DELETE":
        _restore(server)


def _restore(server: EmbeddedApiServer) -> None:
    for path, item in ((PODS, pod("p")), (CLAIMS, claim("c"))):
        if ask(server, "GET", f"{path}/{item['metadata']['name']}").code == 404:
            server.create(path, item)


GPU = "example.com/gpu"
MAPPED = {"containerName": "c", "resourceName": GPU, "requestName": "r"}
MAPPING = "extendedResourceClaimStatus.requestMappings[0]."


def extended(*mappings: dict[str, str], claim: str = "made") -> Object:
    return {"extendedResourceClaimStatus": {"resourceClaimName": claim, "requestMappings": [*mappings]}}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"nominatedNodeName": "n"}, "status.nominatedNodeName: Forbidden"),
        ({"resourceClaimStatuses": [{"name": "other"}]}, "resourceClaimStatuses[0].name: Invalid value"),
        ({"resourceClaimStatuses": [{"name": "g"}] * 2}, "resourceClaimStatuses[1].name: Duplicate value"),
        (
            {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "A_"}]},
            "resourceClaimStatuses[0].resourceClaimName: Invalid value",
        ),
        (extended(), "requestMappings: Required value"),
        (extended({**MAPPED, "containerName": "idle"}), f"{MAPPING}resourceName: Invalid value"),
        (extended({**MAPPED, "containerName": "none"}), f"{MAPPING}containerName: Invalid value"),
        (extended({**MAPPED, "requestName": "R_"}), "extendedResourceClaimStatus.requestName: Invalid value"),
        (extended(MAPPED, MAPPED), "requestMappings[1].requestName: Duplicate value"),
        (extended(MAPPED, claim=""), "extendedResourceClaimStatus.resourceClaimName: Required value"),
        (extended(MAPPED, claim="A_"), "extendedResourceClaimStatus.resourceClaimName: Invalid value"),
    ],
)
def test_the_status_of_a_pod_names_claims_only_for_what_asks_for_them(
    server: EmbeddedApiServer, status: Object, said: str
) -> None:
    asks = {"name": "c", "image": "x", "resources": {"limits": {GPU: 1}}}
    claims = [{"name": "g", "resourceClaimTemplateName": "t"}]
    spec = {"containers": [asks, {"name": "idle", "image": "x"}], "resourceClaims": claims, "nodeName": "m"}
    made = server.create(PODS, {"metadata": {"generateName": "asks-"}, "spec": spec})
    path = f"{PODS}/{made['metadata']['name']}/status"
    told = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "mine"}], **extended(MAPPED)}
    assert ask(server, "PATCH", path, {"status": told}, content_type=MERGE).code == 200

    refused = ask(server, "PATCH", path, {"status": status}, content_type=MERGE)

    assert (refused.code, said in refused.body["message"]) == (422, True), refused.body["message"]
    kept = ask(server, "PATCH", path, {"status": dict.fromkeys(told)}, content_type=MERGE).body["status"]
    assert kept.items() >= told.items()
