"""An operator written with kopf, for a kind of its own, works on the embedded cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml

from envtest.embedded.cluster import EmbeddedCluster
from tests.eventually import eventually

PATH = "/apis/clients.example.com/v1/namespaces/default/toys"


@pytest.fixture
def operator(kubeconfig: Path, toys: dict[str, Any]) -> Iterator[list[str]]:
    """An operator for toys that runs; returns what its handlers were called for."""
    del toys
    registry, called = kopf.OperatorRegistry(), list[str]()
    content = yaml.safe_load(kubeconfig.read_text())
    server, user = content["clusters"][0]["cluster"]["server"], content["users"][0]["user"]

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server, token=user.get("token"))

    @kopf.on.create("toys", registry=registry, id="create")
    def create(body: kopf.Body, spec: kopf.Spec, name: str, **_: Any) -> dict[str, Any]:
        called.append(f"create {name}")
        kopf.info(body, reason="Made", message="the toy is made")
        return {"made": spec["count"]}

    @kopf.on.update("toys", registry=registry, field="spec.count")
    def update(old: Any, new: Any, patch: kopf.Patch, **_: Any) -> None:
        called.append(f"update {old} {new}")
        patch.status["made"] = new

    @kopf.on.delete("toys", registry=registry)
    def delete(name: str, **_: Any) -> None:
        called.append(f"delete {name}")

    ready, stop = threading.Event(), threading.Event()
    run = kopf.operator(
        registry=registry, ready_flag=ready, stop_flag=stop, namespaces=["default"], standalone=True
    )
    thread = threading.Thread(target=asyncio.run, args=(run,))
    thread.start()
    try:
        assert ready.wait(20)
        yield called
    finally:
        stop.set()
        thread.join(20)


def test_handlers_are_called_and_the_finalizer_is_taken_away(
    operator: list[str], cluster: EmbeddedCluster
) -> None:
    server = cluster.api_server
    body = {"apiVersion": "clients.example.com/v1", "kind": "Toy", "metadata": {"name": "robot"}}
    server.create(PATH, body | {"spec": {"color": "red"}})

    def toy() -> dict[str, Any]:
        return next(iter(server.objects("toys", "clients.example.com")), {})

    eventually("the toy is made", lambda: toy().get("status", {}).get("create") == {"made": 1})
    assert toy()["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    server.replace(f"{PATH}/robot", toy() | {"spec": {"color": "red", "count": 4}})
    eventually("four are made", lambda: toy().get("status", {}).get("made") == 4)
    server.delete(f"{PATH}/robot")
    eventually("the toy is gone", lambda: not toy())
    assert operator == ["create robot", "update 1 4", "delete robot"]
    reasons = [event["reason"] for event in server.objects("events")]
    assert reasons == ["Made"]
