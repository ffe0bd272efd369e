"""A container gets its variables and files, from ConfigMaps and Secrets too, or waits for them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from envtest.embedded.node.commands.environment import ConfigMissing, command_of, volume_files

POD: dict[str, Any] = {"metadata": {"name": "train", "namespace": "team"}, "spec": {}}
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    ("configmap", "settings"): {"data": {"LEVEL": "debug", "mode": "fast"}},
    ("secret", "login"): {"data": {"PASSWORD": base64.b64encode(b"open sesame").decode()}},
}


def find(kind: str, name: str) -> dict[str, Any] | None:
    return OBJECTS.get((kind, name))


def test_a_container_has_its_own_variables_and_those_that_every_one_has() -> None:
    container: dict[str, Any] = {
        "command": ["sh", "-c"],
        "args": ["echo $(GREETING) $(OTHER) $$(GREETING)"],
        "env": [{"name": "GREETING", "value": "hello"}, {"name": "NODE", "valueFrom": {"fieldRef": {}}}],
    }

    command = command_of(POD, container, find)

    assert command.words == ("sh", "-c", "echo hello $(OTHER) $(GREETING)")
    assert command.env["HOSTNAME"] == "train"
    assert command.env["GREETING"] == "hello"
    assert "NODE" not in command.env
    assert command_of(POD, {"args": ["x"]}, find).words == ()


def test_variables_that_are_fields_of_the_pod_are_known() -> None:
    labels = {"example.com/index": "3"}
    metadata = {"name": "train", "namespace": "team", "uid": "u", "labels": labels}
    fields = {
        "NAME": "metadata.name",
        "TEAM": "metadata.namespace",
        "UID": "metadata.uid",
        "INDEX": "metadata.labels['example.com/index']",
        "NOTE": "metadata.annotations['example.com/note']",
        "NODE": "spec.nodeName",
        "ADDRESS": "status.podIP",
    }
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    pod = {"metadata": metadata, "spec": {"nodeName": "node-0"}}

    found = command_of(pod, {"env": env}, find).env

    known = {name: found.get(name) for name in fields}
    expected = {"NAME": "train", "TEAM": "team", "UID": "u", "INDEX": "3", "NOTE": "", "NODE": "node-0"}
    assert known == {**expected, "ADDRESS": None}


def test_variables_come_from_config_maps_and_secrets_and_later_ones_win() -> None:
    container = {
        "envFrom": [
            {"configMapRef": {"name": "settings"}, "prefix": "S_"},
            {"secretRef": {"name": "login"}},
            {"configMapRef": {"name": "nothing", "optional": True}},
        ],
        "env": [
            {"name": "S_LEVEL", "value": "$(S_LEVEL)ging"},
            {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
            {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "PASSWORD"}}},
            {
                "name": "NONE",
                "valueFrom": {"secretKeyRef": {"name": "login", "key": "other", "optional": True}},
            },
        ],
    }

    env = command_of(POD, container, find).env

    assert {key: value for key, value in env.items() if key not in ("PATH", "HOSTNAME", "HOME")} == {
        "S_LEVEL": "debugging",
        "S_mode": "fast",
        "PASSWORD": "open sesame",
        "MODE": "fast",
        "WORD": "open sesame",
    }


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ({"envFrom": [{"configMapRef": {"name": "nope"}}]}, 'configmap "nope" not found'),
        ({"envFrom": [{"secretRef": {"name": "nope"}}]}, 'secret "nope" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "no"}}}]},
            "couldn't find key no in ConfigMap team/settings",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "no"}}}]},
            "couldn't find key no in Secret team/login",
        ),
    ],
)
def test_what_is_missing_is_named_in_the_words_of_the_kubelet(container: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigMissing) as missing:
        command_of(POD, container, find)
    assert str(missing.value) == why


def test_volumes_put_files_into_a_container() -> None:
    items = [{"key": "mode", "path": "deep/mode.txt"}]
    sources = [
        {"secret": {"name": "login"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    volumes = [
        {"name": "all", "configMap": {"name": "settings"}},
        {"name": "some", "configMap": {"name": "settings", "items": items}},
        {"name": "mixed", "projected": {"sources": sources}},
        {"name": "none", "secret": {"secretName": "nope", "optional": True}},
        {"name": "room", "emptyDir": {}},
    ]
    mounts = [{"name": one["name"], "mountPath": f"/etc/{one['name']}"} for one in volumes]
    single = {"name": "all", "mountPath": "/level", "subPath": "LEVEL"}
    pod = {**POD, "spec": {"volumes": volumes}}

    assert command_of(pod, {"volumeMounts": [*mounts, single]}, find).files == {
        "/etc/all/LEVEL": "debug",
        "/etc/all/mode": "fast",
        "/etc/some/deep/mode.txt": "fast",
        "/etc/mixed/PASSWORD": "open sesame",
        "/etc/mixed/name": "train",
        "/level": "debug",
    }


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"configMap": {"name": "nope"}}, 'configmap "nope" not found'),
        ({"secret": {"secretName": "nope"}}, 'secret "nope" not found'),
        (
            {"configMap": {"name": "settings", "items": [{"key": "no", "path": "x"}]}},
            "configmap references non-existent config key: no",
        ),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_named(source: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigMissing) as missing:
        volume_files(POD, {"name": "files", **source}, find)
    assert str(missing.value) == f'MountVolume.SetUp failed for volume "files" : {why}'
