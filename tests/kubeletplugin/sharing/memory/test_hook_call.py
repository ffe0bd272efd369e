"""What a hook tells is read strictly, and names in a runtime's annotations only where they can be names."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.sharing.memory.hook_socket import (
    MOST_BYTES,
    MalformedCall,
    container_names,
    container_start,
    no,
    yes,
)
from tests.clusters import Object
from tests.kubeletplugin.sharing.memory.served_hooks import call, line

CONTAINERD = {
    "io.kubernetes.cri.sandbox-namespace": "team",
    "io.kubernetes.cri.sandbox-name": "train-0",
    "io.kubernetes.cri.container-name": "main",
}
CRI_O = {"io.kubernetes.cri-o.ContainerName": "k8s_main_train-0_team_6f1c-uid_3"}
KUBELET = {
    "io.kubernetes.pod.namespace": "team",
    "io.kubernetes.pod.name": "train-0",
    "io.kubernetes.container.name": "main",
}
NAMES = ("team", "train-0", "main")
UNKNOWN = ("", "", "")


@pytest.mark.parametrize(
    "annotations",
    [CONTAINERD, CRI_O, KUBELET, CRI_O | KUBELET, CONTAINERD | CRI_O],
    ids=["containerd", "CRI-O", "the kubelet's labels", "CRI-O with labels", "two that agree"],
)
def test_each_runtime_has_the_names_in_annotations_of_its_own(annotations: dict[str, str]) -> None:
    assert container_names(annotations) == NAMES


def test_a_pods_own_annotations_replace_no_name() -> None:
    """A runtime may be set to hand on those of pods, which can look like another runtime's."""
    of_a_pod = dict.fromkeys(KUBELET, "victim")
    assert container_names(CONTAINERD | of_a_pod) == NAMES
    assert container_names(CRI_O | of_a_pod) == NAMES
    assert (
        container_names(CONTAINERD | {"io.kubernetes.cri-o.ContainerName": "k8s_victim_p_n_u_0"}) == UNKNOWN
    )


@pytest.mark.parametrize(
    "annotations",
    [
        None,
        "main",
        {"io.kubernetes.cri.container-name": "main"},
        CONTAINERD | {"io.kubernetes.cri.container-name": "main\n\x1b[31m"},
        CONTAINERD | {"io.kubernetes.cri.container-name": "\u216fain"},
        CONTAINERD | {"io.kubernetes.cri.sandbox-name": "a" * 254},
        CONTAINERD | {"io.kubernetes.cri.sandbox-namespace": ["team"]},
        {"io.kubernetes.cri-o.ContainerName": "k8s_main_train-0_team_uid"},
    ],
    ids=repr,
)
def test_what_cannot_be_a_name_is_none(annotations: Any) -> None:
    assert container_names(annotations) == UNKNOWN


MALFORMED = {
    "nothing": (b"", "not JSON"),
    "no text": (b"\xff\xfe", "not JSON"),
    "a long number": (b'{"version":' + b"1" * 5000 + b"}", "version 1"),
    "a list": (b"[]", "not a JSON object"),
    "a later version": (line(call(version=2)), "version 1"),
    "no claim": (line(call(claim=None)), "no claim"),
    "a path as claim": (line(call(claim="../../etc")), "not a UID"),
    "another claim's device": (line(call(device="other-claim-gpu")), "not one of its claim"),
    "a state that is none": (line(call(state="abc")), "no state"),
    "a long id": (line(call(state={"id": "a" * 256})), "no id"),
    "a number as group": (line(call(cgroup=7)), "no cgroup"),
    "a group that moves the cursor": (line(call(cgroup="0::/a\x1b[2J\n")), "control group"),
    "a long group": (line(call(cgroup="0::/" + "a" * 20_000)), "control group"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_tells_of_no_container_is_refused_with_the_reason(what: str) -> None:
    said, reason = MALFORMED[what]
    with pytest.raises(MalformedCall, match=reason):
        container_start(said)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)
_KEYS = st.sampled_from([*CONTAINERD, *CRI_O, *KUBELET]) | st.text()
_HOSTILE_ANNOTATIONS = st.dictionaries(_KEYS, st.text() | st.just("main") | _JSON)


@given(st.binary() | _JSON.map(line))
def test_any_bytes_are_a_container_or_malformed(said: bytes) -> None:
    try:
        container_start(said)
    except MalformedCall as error:
        assert str(error).isprintable()


@given(
    _HOSTILE_ANNOTATIONS, st.dictionaries(st.sampled_from(["version", "claim", "device", "cgroup"]), _JSON)
)
def test_whatever_a_container_says_of_itself_comes_out_as_names_or_not_at_all(
    annotations: Object, changed: Object
) -> None:
    said = call(**changed)
    said["state"]["annotations"] = annotations
    try:
        start = container_start(line(said))
    except MalformedCall:
        return
    assert start.cdi_device.startswith(f"{start.claim_uid}-")
    for name in (start.namespace, start.pod, start.container):
        assert name.isascii()
        assert name.isprintable()
        assert len(name) <= 253
        assert not set(name) & set("/\\ \"'_")


def test_an_answer_is_one_line_of_bounded_length_whatever_the_message() -> None:
    assert json.loads(yes()) == {"ok": True}
    for message in ("a\nb\x00", "\U0001f4a5" * 10_000, "\ud800"):
        answer = no(message)
        assert len(answer) <= MOST_BYTES
        assert answer.count(b"\n") == 1
        assert json.loads(answer)["ok"] is False
