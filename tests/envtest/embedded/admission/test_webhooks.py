"""Webhooks take part in writes as those of kube-apiserver do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from envtest.embedded.api.requests import parse_request
from envtest.embedded.api.statuses import Refused
from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.admission.webhook_server import (
    BUNDLE,
    OWN_BUNDLE,
    SERVICE,
    PlayedWebhook,
    add,
    allow,
    deny,
    patch,
    played_webhook,
    rule,
)

Object = dict[str, Any]
REGISTRATION = "admissionregistration.k8s.io"
GROUP = f"/apis/{REGISTRATION}/v1"
MUTATING, VALIDATING = f"{GROUP}/mutatingwebhookconfigurations", f"{GROUP}/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
ONLY_LOOPBACK = "the embedded cluster calls webhooks at addresses of loopback only, or through its resolver"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def played() -> Iterator[PlayedWebhook]:
    with played_webhook() as webhook:
        yield webhook


@pytest.fixture
def webhook(played: PlayedWebhook) -> PlayedWebhook:
    played.requests.clear()
    return played


@pytest.fixture
def server() -> EmbeddedApiServer:
    return EmbeddedApiServer()


def configure(server: EmbeddedApiServer, path: str, *hooks: Object, name: str = "one") -> None:
    server.create(path, {"metadata": {"name": name}, "webhooks": list(hooks)})


def config_map(name: str = "c", **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


def refusal(server: EmbeddedApiServer, path: str = MAPS, item: Object | None = None) -> Object:
    with pytest.raises(Refused) as caught:
        server.create(path, item or config_map())
    return caught.value.body


def test_a_webhook_sees_who_does_what_to_which_object(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    configure(server, VALIDATING, webhook.hook("/seen", allow))
    server.create(MAPS, config_map(a="1"))
    request = parse_request("PATCH", f"{MAPS}/c?fieldManager=me")
    assert request is not None
    server.verbs.patch(request, {"data": {"a": "2"}}, MERGE)
    server.delete(f"{MAPS}/c")

    created, updated, deleted = (one for _, one in webhook.requests)

    assert created["operation"] == "CREATE"
    assert (created["object"]["data"], created["oldObject"]) == ({"a": "1"}, None)
    assert created["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert created["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (created["name"], created["namespace"], created["dryRun"]) == ("c", "default", False)
    assert created["userInfo"]["groups"] == ["system:masters", "system:authenticated"]
    assert (updated["object"]["data"], updated["oldObject"]["data"]) == ({"a": "2"}, {"a": "1"})
    # A patch is an update to webhooks.
    assert updated["options"] == {
        "kind": "UpdateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "me",
    }
    assert (deleted["operation"], deleted["object"]) == ("DELETE", None)
    assert deleted["oldObject"]["data"] == {"a": "2"}


@pytest.mark.parametrize(
    ("status", "code", "reason", "text"),
    [
        ({}, 400, None, "denied the request without explanation"),
        ({"message": "no"}, 400, None, "denied the request: no"),
        ({"reason": "Because"}, 400, "Because", "denied the request: Because"),
        ({"code": 200, "message": "no"}, 400, None, "denied the request: no"),
        ({"code": 422, "reason": "Invalid", "message": "no"}, 422, "Invalid", "denied the request: no"),
    ],
)
@pytest.mark.parametrize("path", [MUTATING, VALIDATING])
def test_a_denial_is_answered_with_what_the_webhook_says(
    server: EmbeddedApiServer,
    webhook: PlayedWebhook,
    path: str,
    status: Object,
    code: int,
    reason: str | None,
    text: str,
) -> None:
    configure(server, path, webhook.hook("/denied", deny(**status)))

    body = refusal(server)

    assert (body["code"], body.get("reason")) == (code, reason)
    assert body["message"] == f'admission webhook "denied.example.com" {text}'
    assert server.objects("configmaps") == []


def test_a_mutating_webhook_changes_the_object_before_it_is_validated(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    configure(server, MUTATING, webhook.hook("/change", patch(add("/data/b", "2"), add("/nonsense", 1))))
    configure(server, VALIDATING, webhook.hook("/see", allow))

    stored = server.create(MAPS, config_map(a="1"))

    assert (stored["data"], "nonsense" in stored) == ({"a": "1", "b": "2"}, False)
    assert webhook.requests[-1][1]["object"]["data"] == {"a": "1", "b": "2"}


def test_a_mutating_webhook_sees_the_defaults(server: EmbeddedApiServer, webhook: PlayedWebhook) -> None:
    configure(server, MUTATING, webhook.hook("/pods", allow, rules=[rule("pods")]))
    server.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    containers = [{"name": "c", "image": "i"}]
    server.create(
        "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    )

    spec = webhook.requests[0][1]["object"]["spec"]
    assert (spec["restartPolicy"], spec["priority"], len(spec["tolerations"])) == ("Always", 0, 2)


def test_webhooks_are_asked_in_the_order_of_their_configurations_and_a_second_time_where_they_want(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    wants, does_not = {"reinvocationPolicy": "IfNeeded"}, {"reinvocationPolicy": "Never"}
    configure(server, MUTATING, webhook.hook("/last", patch(add("/data/z", "1")), **wants), name="z")
    configure(
        server,
        MUTATING,
        webhook.hook("/first", allow, **wants),
        webhook.hook("/second", allow, **does_not),
        name="a",
    )

    server.create(MAPS, config_map(a="1"))

    # The last one has changed the object after the first had seen it.
    assert webhook.paths == ["/first", "/second", "/last", "/first"]


def test_nothing_is_asked_again_where_nothing_has_changed(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    again = {"reinvocationPolicy": "IfNeeded"}
    configure(server, MUTATING, webhook.hook("/a", allow, **again), webhook.hook("/b", allow, **again))

    server.create(MAPS, config_map())

    assert webhook.paths == ["/a", "/b"]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"rules": [rule("pods")]}, False),
        ({"rules": [rule("*")]}, True),
        ({"rules": [rule("configmaps/status")]}, False),
        ({"rules": [rule("configmaps", operations=["DELETE", "UPDATE"])]}, False),
        ({"rules": [rule("configmaps", scope="Cluster")]}, False),
        ({"rules": [rule("configmaps", apiGroups=["apps"]), rule("*/*")]}, True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}, False),
    ],
)
def test_rules_and_selectors_say_which_writes_a_webhook_is_asked_about(
    server: EmbeddedApiServer, webhook: PlayedWebhook, fields: Object, *, asked: bool
) -> None:
    configure(server, VALIDATING, webhook.hook("/chosen", allow, **fields))

    server.create(MAPS, config_map())

    assert bool(webhook.requests) is asked


@pytest.mark.parametrize(
    ("expressions", "asked"),
    [
        (["object.data.a == '1'", "request.operation == 'CREATE'"], True),
        (["object.data.a == '1'", "request.userInfo.username == 'somebody'"], False),
        # One that is false decides, even if another one fails.
        (["object.none == 1", "oldObject != null"], False),
        (["authorizer.group('').resource('pods').check('create').allowed()"], True),
    ],
)
@pytest.mark.parametrize("path", [MUTATING, VALIDATING])
def test_match_conditions_have_the_last_word(
    server: EmbeddedApiServer, webhook: PlayedWebhook, path: str, expressions: list[str], *, asked: bool
) -> None:
    conditions = [{"name": f"c{index}", "expression": one} for index, one in enumerate(expressions)]
    configure(server, path, webhook.hook("/conditions", allow, matchConditions=conditions))

    server.create(MAPS, config_map(a="1"))

    assert bool(webhook.requests) is asked


def test_a_condition_that_fails_forbids_the_write_or_spares_it_the_webhook(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    failing = {"matchConditions": [{"name": "c", "expression": "object.none == 1"}]}
    configure(server, VALIDATING, webhook.hook("/failing", allow, **failing, failurePolicy="Ignore"))
    server.create(MAPS, config_map("ignored"))
    server.delete(f"{VALIDATING}/one")
    configure(server, VALIDATING, webhook.hook("/failing", allow, **failing))

    body = refusal(server)

    assert (body["code"], body["reason"], webhook.requests) == (403, "Forbidden", [])
    assert body["message"] == (
        "configmaps \"c\" is forbidden: expression 'object.none == 1' resulted in error: no such key: none"
    )


def test_the_labels_of_a_namespace_itself_are_those_that_it_will_have(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    selector = {"matchLabels": {"a": "b"}}
    configure(
        server, VALIDATING, webhook.hook("/ns", allow, rules=[rule("namespaces")], namespaceSelector=selector)
    )

    server.create("/api/v1/namespaces", {"metadata": {"name": "with", "labels": {"a": "b"}}})
    server.create("/api/v1/namespaces", {"metadata": {"name": "without"}})

    assert [one["namespace"] for _, one in webhook.requests] == ["with"]


def test_an_equivalent_resource_is_converted_for_the_webhook(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    rules = [rule("events", apiGroups=["events.k8s.io"])]
    configure(
        server,
        VALIDATING,
        webhook.hook("/equal", allow, rules=rules),
        webhook.hook("/exact", allow, rules=rules, matchPolicy="Exact"),
    )
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "m", "reason": "R"}

    server.create("/api/v1/namespaces/default/events", event)

    [(path, request)] = webhook.requests
    assert path == "/equal"
    assert (request["kind"]["group"], request["requestKind"]["group"]) == ("events.k8s.io", "")
    assert (request["object"]["note"], request["object"]["apiVersion"]) == ("m", "events.k8s.io/v1")


def test_no_webhook_is_asked_about_webhook_configurations(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    configure(server, VALIDATING, webhook.hook("/all", deny(), rules=[rule("*/*")]))

    server.delete(f"{VALIDATING}/one")

    assert webhook.requests == []


def test_a_dry_run_asks_no_webhook_with_side_effects(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    configure(server, VALIDATING, webhook.hook("/quiet", allow))
    server.create(f"{MAPS}?dryRun=All", config_map())
    with server.store.changed:
        item = server.objects("validatingwebhookconfigurations", REGISTRATION)[0]
        # A new configuration may not say so any more, older ones may.
        loud = {**item, "webhooks": [{**item["webhooks"][0], "sideEffects": "Unknown"}]}
        server.store.put(
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations"), ("", "one"), loud
        )

    body = refusal(server, f"{MAPS}?dryRun=All")

    assert (body["code"], body["reason"]) == (400, "BadRequest")
    assert body["message"] == 'admission webhook "quiet.example.com" does not support dry run'
    assert [one["dryRun"] for _, one in webhook.requests] == [True]


def test_warnings_reach_the_client(server: EmbeddedApiServer, webhook: PlayedWebhook) -> None:
    configure(server, VALIDATING, webhook.hook("/warn", lambda _: {"allowed": True, "warnings": ["careful"]}))
    request, warnings = parse_request("POST", MAPS), list[str]()
    assert request is not None

    server.verbs.create(request, config_map(), warnings)

    assert warnings == ["careful"]


def test_a_webhook_of_a_service_is_asked_where_the_resolver_says(webhook: PlayedWebhook) -> None:
    asked: list[tuple[str, str, int]] = []

    def resolve(namespace: str, name: str, port: int) -> tuple[str, int]:
        asked.append((namespace, name, port))
        return "127.0.0.1", webhook.port

    server = EmbeddedApiServer(resolve_service=resolve)
    service = {"namespace": "team", "name": "hook", "path": "/served"}
    config = {"clientConfig": {"service": service, "caBundle": BUNDLE}}
    configure(server, VALIDATING, webhook.hook("/served", allow, **config))

    server.create(MAPS, config_map())

    assert (webhook.paths, asked) == (["/served"], [("team", "hook", 443)])
    assert webhook.hosts[-1] == f"{SERVICE}:443"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            {"service": {"namespace": "team", "name": "hook", "path": "/x"}},
            'Post "https://hook.team.svc:443/x?timeout=10s": service "hook" not found',
        ),
        (
            {"url": "https://127.0.0.1:1/x"},
            'Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused',
        ),
        (
            {"url": "https://192.0.2.1/x"},
            'Post "https://192.0.2.1/x?timeout=10s": dial tcp 192.0.2.1:443: ' + ONLY_LOOPBACK,
        ),
    ],
)
def test_a_webhook_that_cannot_be_reached_fails_the_write(
    server: EmbeddedApiServer, webhook: PlayedWebhook, config: Object, why: str
) -> None:
    configure(server, VALIDATING, webhook.hook("/none", allow, clientConfig=config))

    body = refusal(server)

    text = f'failed calling webhook "none.example.com": failed to call webhook: {why}'
    assert (body["code"], body["reason"]) == (500, "InternalError")
    assert body["message"] == f"Internal error occurred: {text}"
    assert body["details"]["causes"] == [{"message": text}]


def test_a_certificate_has_to_be_of_the_authority_in_the_bundle(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    hook = webhook.hook("/untrusted", allow)
    del hook["clientConfig"]["caBundle"]
    configure(server, VALIDATING, hook)

    assert "x509: certificate signed by unknown authority" in refusal(server)["message"]
    assert webhook.requests == []


def test_the_bundle_may_be_the_certificate_itself(server: EmbeddedApiServer, webhook: PlayedWebhook) -> None:
    hook = webhook.hook("/own", allow)
    hook["clientConfig"]["caBundle"] = OWN_BUNDLE
    configure(server, VALIDATING, hook)
    server.create(MAPS, config_map())

    assert webhook.paths == ["/own"]


def test_a_redirect_is_followed(server: EmbeddedApiServer, webhook: PlayedWebhook) -> None:
    hook = webhook.hook("/moved", allow)
    hook["clientConfig"]["url"] = f"https://127.0.0.1:{webhook.port}//moved"
    configure(server, VALIDATING, hook)
    server.create(MAPS, config_map())

    assert webhook.paths == ["/moved"]


def test_a_webhook_that_takes_too_long_fails_the_write(
    server: EmbeddedApiServer, webhook: PlayedWebhook
) -> None:
    released = threading.Event()

    def hang(_request: Object) -> Object:
        released.wait(10)
        return {"allowed": True}

    configure(server, VALIDATING, webhook.hook("/slow", hang, timeoutSeconds=1))

    try:
        assert refusal(server)["message"].endswith('/slow?timeout=1s": context deadline exceeded')
    finally:
        released.set()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (500, 'an error on the server ("some text") has prevented the request from succeeding'),
        (404, "the server could not find the requested resource"),
        (b"{}", "received invalid webhook response: webhook response was absent"),
        (b"", "0-length response with status code: 200"),
        (b"{]", "json parse error: invalid character ']' looking for beginning of object key string"),
        ({"allowed": True, "uid": "other"}, 'got "other"'),
        ({"allowed": True, "patch": "W10="}, "validating webhook may not return response.patch"),
    ],
)
def test_an_answer_that_makes_no_sense_fails_the_write_unless_failures_are_ignored(
    server: EmbeddedApiServer, webhook: PlayedWebhook, answer: Object | bytes | int, why: str
) -> None:
    configure(server, VALIDATING, webhook.hook("/odd", lambda _: answer))
    assert why in refusal(server)["message"]
    server.delete(f"{VALIDATING}/one")

    configure(server, VALIDATING, webhook.hook("/odd", lambda _: answer, failurePolicy="Ignore"))
    server.create(MAPS, config_map())

    assert webhook.paths == ["/odd", "/odd"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"allowed": True, "patch": "W10="}, "webhook returned response.patch but not response.patchType"),
        (
            {"allowed": True, "patchType": "JSONPatch"},
            "webhook returned response.patchType but not response.patch",
        ),
        ({"allowed": True, "patch": "e30=", "patchType": "JSONPatch"}, "received undecodable patch"),
        ({"allowed": True, "patch": "*", "patchType": "JSONPatch"}, "illegal base64 data at input byte 0"),
        (
            patch(add("/no/x", 1))({}),
            'add operation does not apply: doc is missing path: "/no/x": missing value',
        ),
    ],
)
def test_a_patch_that_makes_no_sense_fails_the_write(
    server: EmbeddedApiServer, webhook: PlayedWebhook, answer: Any, why: str
) -> None:
    configure(server, MUTATING, webhook.hook("/odd", lambda _: answer))

    assert why in refusal(server)["message"]


def test_a_deletion_cannot_be_patched(server: EmbeddedApiServer, webhook: PlayedWebhook) -> None:
    server.create(MAPS, config_map())
    configure(server, MUTATING, webhook.hook("/late", patch(add("/data", {}))))

    with pytest.raises(Refused, match="attempted to modify the object, which is not supported"):
        server.delete(f"{MAPS}/c")


def test_a_changed_configuration_counts_at_once(server: EmbeddedApiServer, webhook: PlayedWebhook) -> None:
    configure(server, VALIDATING, webhook.hook("/no", deny()))
    refusal(server)

    [stored] = server.objects("validatingwebhookconfigurations", REGISTRATION)
    server.replace(f"{VALIDATING}/one", {**stored, "webhooks": [webhook.hook("/yes", allow)]})
    server.create(MAPS, config_map())

    assert webhook.paths == ["/no", "/yes"]
