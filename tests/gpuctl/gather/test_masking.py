"""What may be secret is masked, and what a bug report needs is kept."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.gather.archive import text_member
from gpuctl.gather.masking import MASK, masked_object, masked_opaque, masked_text, masked_words

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
KEY = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----"
GOOD = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "GpuConfig",
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"asked with {JWT} and refused", JWT),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
        ("client-key-data: LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg=="),
        (f"before\n{KEY}\nafter", "MIGHAgEAMBMG"),
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE", "MHcCAQEE"),
        ("pull with nvapi-abcdefghijklmnopqrstuvwxyz", "nvapi-abc"),
        ("used AKIAIOSFODNN7EXAMPLE and ghp_abcdefghijklmnopqrst", "AKIAIOSFODNN7EXAMPLE"),
        ('{"message": "-----BEGIN PRIVATE KEY-----\\nMIGH\\n-----END PRIVATE KEY-----"}', "MIGH"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_looks_like_a_secret_is_masked_in_text(text: str, secret: str) -> None:
    masked = masked_text(text)

    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "the driver's token names no node, it must be the projected token of a pod",
        '{"level": "info", "event": "claim prepared", "uid": "1-2-3", "gpu": "GPU-4c5e"}',
        "replace the Secret gpu-dra-webhook-tls",
        'gpu_dra_share_info{uuid="GPU-1",namespace="team",claim="train"} 1.0',
        "http://10.0.0.1:9402/metrics",
        "object == null ? variables.nodeOfToken : object.spec.?nodeName",
        "--token-file /var/run/token --key-file=/tls.key; secretName: gpu-dra-webhook-tls",
        '{"auto": {"token": true}, "secretKeyRef": {"name": "a", "key": "b"}}',
    ],
)
def test_ordinary_words_are_kept(text: str) -> None:
    assert masked_text(text) == text


def test_annotations_and_managed_fields_go_and_labels_of_users_are_masked() -> None:
    metadata = {
        "name": "x",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "all of it"},
        "managedFields": [{"manager": "me"}],
        "labels": {"app.kubernetes.io/name": "gpu-dra", "nvidia.com/gpu.present": "true", "cost": "secret"},
    }

    assert masked_object({"kind": "Node", "metadata": metadata}) == {
        "kind": "Node",
        "metadata": {
            "name": "x",
            "labels": {"app.kubernetes.io/name": "gpu-dra", "nvidia.com/gpu.present": "true", "cost": MASK},
        },
    }


def container(**fields: Any) -> Any:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", **fields}]}}
    return masked_object(pod)["spec"]["containers"][0]


def test_variables_are_kept_where_the_driver_knows_them() -> None:
    env = [
        {"name": "GPU_DRA_NODE_NAME", "value": "node-a"},
        {"name": "GPU_DRA_PASSPHRASE", "value": "x1"},
        {"name": "HTTPS_PROXY", "value": "http://x2"},
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "named", "key": "k"}}},
    ]

    shown = container(command=["gpu-dra-mps"], env=env)["env"]

    assert shown[0]["value"] == "node-a"
    assert shown[1]["value"] == shown[2]["value"] == MASK
    assert shown[3:] == env[3:]


def test_the_command_line_of_the_driver_is_kept_but_for_flags_that_it_does_not_know() -> None:
    words = ["gpu-dra-controller", "--node-name=a", "--own=x1", "--other", "x2", "--nvml", "fake:t4"]

    assert masked_words(words) == [
        *("gpu-dra-controller", "--node-name=a", f"--own={MASK}", "--other", MASK, "--nvml", "fake:t4")
    ]


def test_of_containers_of_others_only_what_they_are_is_kept() -> None:
    probe = {"exec": {"command": ["sh", "-c", "echo x1"]}}

    shown = container(command=["sh", "-c", "x2"], env=[{"name": "A", "value": "x3"}], livenessProbe=probe)

    assert shown == {"name": "c", "image": "i"}


def test_volumes_and_probes_that_hold_anything_are_masked() -> None:
    volume = {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"pw": "x1"}}}
    probe = {"httpGet": {"path": "/livez", "httpHeaders": [{"name": "Authorization", "value": "x2"}]}}
    spec = {
        "volumes": [volume],
        "containers": [{"name": "c", "command": ["gpu-dra-mps"], "livenessProbe": probe}],
    }

    shown = masked_object({"metadata": {"name": "p"}, "spec": spec})["spec"]

    assert shown["volumes"][0]["csi"] == {"driver": "d", "volumeAttributes": MASK}
    assert shown["containers"][0]["livenessProbe"]["httpGet"] == {"path": "/livez", "httpHeaders": MASK}


def test_configurations_are_kept_where_they_are_ours_and_right() -> None:
    assert masked_opaque({"driver": "gpu.nvidia.com", "parameters": GOOD})["parameters"] == GOOD
    wrong = {**GOOD, "token": "x1"}
    assert "x1" not in str(masked_opaque({"driver": "gpu.nvidia.com", "parameters": wrong}))
    assert masked_opaque({"driver": "nic.example.com", "parameters": GOOD})["parameters"] == MASK


def test_what_other_drivers_say_of_their_devices_goes() -> None:
    own = {"driver": "gpu.nvidia.com", "pool": "p", "device": "d", "data": {"uuid": "MIG-1"}}
    other = {"driver": "nic.example.com", "pool": "p", "device": "d", "data": {"mac": "x1"}}

    shown = masked_object({"metadata": {"name": "c"}, "status": {"devices": [own, other]}})

    assert shown["status"]["devices"] == [own, {key: other[key] for key in ("driver", "pool", "device")}]


def test_a_ca_bundle_is_told_by_its_digest() -> None:
    hook = {"metadata": {"name": "w"}, "webhooks": [{"name": "h", "clientConfig": {"caBundle": "QUJD"}}]}

    [shown] = masked_object(hook)["webhooks"]

    assert shown["clientConfig"]["caBundle"].startswith("sha256:")


def test_a_text_of_a_report_commands_no_terminal() -> None:
    member = text_member("a.log", '{"event": "x\\u009b\\u202e", "token": "x1"}\nplain \x1b[2J\x9b\u202e\n')

    assert not {"\x1b", "\x9b", "\u202e"}.intersection(member.data.decode())
