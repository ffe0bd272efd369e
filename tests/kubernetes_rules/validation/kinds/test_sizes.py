"""Objects have limits of size, which no case that is compared with Kubernetes is large enough for."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kubernetes_rules.validation.kinds import LEFT_OUT, created_errors

MEBIBYTE = 1024 * 1024


def errors(kind: str, **content: Any) -> list[tuple[str, str]]:
    item = {"kind": kind, "metadata": {"name": "a", "namespace": "b"}, **content}
    return [(error.field, error.title) for error in created_errors("", item, namespaced=True)]


def encoded(size_bytes: int) -> str:
    return base64.b64encode(bytes(size_bytes)).decode()


@pytest.mark.parametrize(("extra", "wanted"), [(0, []), (1, [("[]", "Too long")])])
def test_a_config_map_holds_one_mebibyte(extra: int, wanted: list[tuple[str, str]]) -> None:
    data, binary = {"a": "x" * (MEBIBYTE - 5)}, {"b": encoded(5 + extra)}

    assert errors("ConfigMap", data=data, binaryData=binary) == wanted


@pytest.mark.parametrize(("extra", "wanted"), [(0, []), (1, [("data", "Too long")])])
def test_a_secret_holds_one_mebibyte(extra: int, wanted: list[tuple[str, str]]) -> None:
    assert errors("Secret", data={"a": encoded(MEBIBYTE + extra)}) == wanted


def test_annotations_take_a_quarter_of_a_mebibyte() -> None:
    metadata = {"name": "a", "namespace": "b", "annotations": {"a": "b" * (MEBIBYTE // 4)}}

    assert errors("ConfigMap", metadata=metadata) == [("metadata.annotations", "Too long")]


def test_what_is_left_out_is_listed_once() -> None:
    assert len(set(LEFT_OUT)) == len(LEFT_OUT)
    assert all(kind and part for kind, part in LEFT_OUT)
