"""A container gets its variables."""

from envtest.embedded.node.played_commands import command_of
from tests.clusters import Object

POD: Object = {"metadata": {"name": "train", "namespace": "team"}, "spec": {}}


def test_a_container_has_its_own_variables_and_those_that_every_one_has() -> None:
    container: Object = {
        "command": ["sh", "-c"],
        "args": ["echo $(GREETING) $(OTHER) $$(GREETING)"],
        "env": [{"name": "GREETING", "value": "hello"}, {"name": "NODE", "valueFrom": {"fieldRef": {}}}],
    }

    command = command_of(POD, container)

    assert command.words == ("sh", "-c", "echo hello $(OTHER) $(GREETING)")
    assert command.env["HOSTNAME"] == "train"
    assert command.env["GREETING"] == "hello"
    assert "NODE" not in command.env
    assert command_of(POD, {"args": ["x"]}).words == ()


def test_variables_that_are_fields_of_the_pod_are_known() -> None:
    labels = {"example.com/index": "3"}
    metadata = {"name": "train", "namespace": "team", "uid": "u", "labels": labels}
    fields = {
        "metadata.name": "train",
        "metadata.namespace": "team",
        "metadata.uid": "u",
        "metadata.labels['example.com/index']": "3",
        "metadata.annotations['example.com/note']": "",
        "spec.nodeName": "node-0",
        "status.podIP": None,
    }
    env = [{"name": path, "valueFrom": {"fieldRef": {"fieldPath": path}}} for path in fields]
    pod = {"metadata": metadata, "spec": {"nodeName": "node-0"}}

    found = command_of(pod, {"env": env}).env

    assert {path: found.get(path) for path in fields} == fields
