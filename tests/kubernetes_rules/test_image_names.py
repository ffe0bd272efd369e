"""When an image is pulled by default follows from its name."""

from __future__ import annotations

import pytest

from kubernetes_rules.defaults import default_pull_policy

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "busybox:latest",
        "a/b",
        "localhost:5000/a",
        "Registry/a",
        "[::1]:80/a",
        f"a:latest@{DIGEST}",
    ],
)
def test_an_image_without_a_version_is_always_pulled(image: str) -> None:
    assert default_pull_policy(image) == "Always"


@pytest.mark.parametrize(
    "image",
    [
        "busybox:1",
        "localhost:5000/a:1",
        f"a@{DIGEST}",
        f"a:1@{DIGEST}",
        "a:Latest",
        "nvcr.io/nvidia/cuda:12.9",
    ],
)
def test_a_version_is_pulled_where_it_is_not_there(image: str) -> None:
    assert default_pull_policy(image) == "IfNotPresent"


@pytest.mark.parametrize("image", ["", " a", "Upper", "a/Upper", "a@sha256:b", "a" * 256, "a" * 64, "a:b:c"])
def test_what_is_no_name_of_an_image_is_not_always_pulled(image: str) -> None:
    assert default_pull_policy(image) == "IfNotPresent"
