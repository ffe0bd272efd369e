"""What may be secret is masked, and what a bug report needs is kept."""

import pytest

from gpuctl.gather.archive import text_member
from gpuctl.gather.masking import MASK, masked_text, masked_words

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
KEY = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----"
PARTS = ("eyJ", "abcdef123456", "dXNl", "LS0t", "MIGH", "MHcC", "nvapi", "AKIA", "ghp_")
SECRET_TEXTS = (
    f"asked with {JWT} and refused",
    "Authorization: Bearer abcdef123456",
    "authorization: Basic dXNlcjpwYXNzd29yZA==",
    "client-key-data: LS0tLS1CRUdJTg==",
    f"before\n{KEY}\nafter",
    "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE",
    "pull with nvapi-abcdefghijklmnopqrstuvwxyz",
    "used AKIAIOSFODNN7EXAMPLE and ghp_abcdefghijklmnopqrst",
    '{"message": "-----BEGIN PRIVATE KEY-----\\nMIGH\\n-----END PRIVATE KEY-----"}',
)


@pytest.mark.parametrize("text", SECRET_TEXTS, ids=lambda text: text[:20])
def test_what_looks_like_a_secret_is_masked_in_text(text: str) -> None:
    masked = masked_text(text)

    assert MASK in masked
    assert not any(part in masked for part in PARTS)


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


def test_flags_that_the_driver_does_not_know_are_masked() -> None:
    words = ["gpu-dra-controller", "--node-name=a", "--own=x1", "--other", "x2", "--nvml", "fake:t4"]

    assert masked_words(words) == [
        *("gpu-dra-controller", "--node-name=a", f"--own={MASK}", "--other", MASK, "--nvml", "fake:t4")
    ]


def test_a_text_of_a_report_commands_no_terminal() -> None:
    member = text_member("a.log", '{"event": "x\\u009b\\u202e", "token": "x1"}\nplain \x1b[2J\x9b\u202e\n')

    assert not {"\x1b", "\x9b", "\u202e"}.intersection(member.data.decode())
