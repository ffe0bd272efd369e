"""Objects are named as kubectl lets people name them."""

import click
import pytest

from gpuctl.explain.command import read_targets


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("pod train", [("Pod", "train")]),
        ("po train eval", [("Pod", "train"), ("Pod", "eval")]),
        ("po/train claims/mine", [("Pod", "train"), ("ResourceClaim", "mine")]),
        ("resourceclaims.resource.k8s.io/mine", [("ResourceClaim", "mine")]),
        ("pods", [("Pod", None)]),
    ],
)
def test_these_words_mean(words: str, meant: list[tuple[str, str | None]]) -> None:
    assert [(one.kind, one.name) for one in read_targets(words.split())] == meant


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train", "neither a pod nor a claim"),
        ("node a", "neither a pod nor a claim"),
        ("pod train claim/mine", "contains its kind"),
        ("pod/", "is not KIND/NAME"),
    ],
)
def test_these_words_mean_nothing(words: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        read_targets(words.split())
