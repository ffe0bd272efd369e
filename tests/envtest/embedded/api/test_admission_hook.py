"""Mutators and validators take part in every write, and hold up no other one."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.embedded.api.admission import Attributes
from envtest.embedded.api.statuses import Refused
from envtest.embedded.server import EmbeddedApiServer

MAPS = "/api/v1/namespaces/default/configmaps"
Object = dict[str, Any]


def config_map(**data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}


def no_secrets(attributes: Attributes) -> None:
    if "secret" in ((attributes.item or {}).get("data") or {}):
        raise Refused(403, "no secrets in here")


def test_a_validator_refuses_creations_and_updates() -> None:
    server = EmbeddedApiServer()
    server.verbs.admission.validators.append(no_secrets)
    with pytest.raises(Refused, match="no secrets"):
        server.create(MAPS, config_map(secret="x"))  # noqa: S106 # no password, a key of a ConfigMap
    server.create(MAPS, config_map(a="1"))
    with pytest.raises(Refused, match="no secrets"):
        server.replace(f"{MAPS}/one", config_map(secret="x"))  # noqa: S106 # as above
    assert server.objects("configmaps")[0]["data"] == {"a": "1"}


def test_what_a_mutator_adds_is_stored_and_its_unknown_fields_are_dropped() -> None:
    server = EmbeddedApiServer()

    def add(attributes: Attributes) -> Object | None:
        if attributes.item is None or attributes.resource.plural != "configmaps":
            return attributes.item
        return {**attributes.item, "data": {**attributes.item["data"], "added": "yes"}, "nonsense": 1}

    server.verbs.admission.mutators.append(add)
    stored = server.create(MAPS, config_map(a="1"))
    assert stored["data"] == {"a": "1", "added": "yes"}
    assert "nonsense" not in stored


def test_an_update_is_tried_again_if_the_object_changes_while_it_is_admitted() -> None:
    server = EmbeddedApiServer()
    server.create(MAPS, config_map(a="1"))
    seen: list[Object] = []

    def change_meanwhile(attributes: Attributes) -> None:
        seen.append(attributes.old or {})
        if len(seen) == 1:
            server.replace(f"{MAPS}/one", config_map(a="2"))

    server.verbs.admission.validators.append(change_meanwhile)
    server.replace(f"{MAPS}/one", config_map(a="3"))
    # The first attempt, the write that came in between, and the second attempt.
    assert [one["data"]["a"] for one in seen] == ["1", "1", "2"]
    assert server.objects("configmaps")[0]["data"] == {"a": "3"}


def test_a_deletion_is_admitted_with_the_object_that_goes() -> None:
    server = EmbeddedApiServer()
    server.create(MAPS, config_map(a="1"))
    asked: list[tuple[str, Object | None, str]] = []
    server.verbs.admission.validators.append(
        lambda one: asked.append((one.operation, one.item, (one.old or {})["metadata"]["name"]))
    )
    server.delete(f"{MAPS}/one")
    assert asked == [("DELETE", None, "one")]
