"""Objects are named as kubectl lets people name them."""

from __future__ import annotations

import click
import pytest

from gpuctl.explain.command import Target, read_targets


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("pod train", [("pod", "train")]),
        ("pods train", [("pod", "train")]),
        ("po train eval", [("pod", "train"), ("pod", "eval")]),
        ("pod/train", [("pod", "train")]),
        ("po/train claims/mine", [("pod", "train"), ("claim", "mine")]),
        ("claim mine", [("claim", "mine")]),
        ("resourceclaims mine", [("claim", "mine")]),
        ("resourceclaim/mine", [("claim", "mine")]),
        ("resourceclaims.resource.k8s.io/mine", [("claim", "mine")]),
        ("pods", [("pod", None)]),
        ("claims", [("claim", None)]),
    ],
)
def test_these_words_mean(words: str, meant: list[tuple[str, str | None]]) -> None:
    assert [(one.kind, one.name) for one in read_targets(words.split())] == meant


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train", "neither a pod nor a claim"),
        ("node a", "neither a pod nor a claim"),
        ("node/a", "neither a pod nor a claim"),
        ("pod train claim/mine", "contains its kind"),
        ("pod/", "is not KIND/NAME"),
        ("pod/a/b", "is not KIND/NAME"),
    ],
)
def test_these_words_mean_nothing(words: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        read_targets(words.split())


def test_a_target_is_a_value() -> None:
    assert read_targets(["pod", "x"]) == (Target("pod", "x"),)
