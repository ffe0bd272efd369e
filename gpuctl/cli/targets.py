"""Reads which objects a command is asked about, as kubectl does: ``pod x``, ``po x y``, ``pods/x``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import click
from click.shell_completion import CompletionItem

from gpuctl.cli.values import claims, pods

Kind = Literal["pod", "claim"]

_WORDS: Mapping[str, Kind] = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim"),
    **dict.fromkeys(("resourceclaim.resource.k8s.io", "resourceclaims.resource.k8s.io"), "claim"),
}
_OFFERED = ("pod", "claim")
_VALUES: Mapping[Kind, Callable[[click.Context, str], list[str]]] = {"pod": pods, "claim": claims}


@dataclass(frozen=True, slots=True)
class Target:
    """An object by its name, or with None all objects of the kind."""

    kind: Kind
    name: str | None


def read_targets(words: Sequence[str]) -> tuple[Target, ...]:
    """The objects that are meant; raises click.UsageError for words that mean none."""
    with_slash = [word for word in words if "/" in word]
    if not with_slash:
        kind = _kind(words[0])
        return tuple(Target(kind, name) for name in words[1:]) or (Target(kind, None),)
    if len(with_slash) < len(words):
        raise click.UsageError(f"{with_slash[0]!r} names its kind itself: write all objects so, or none")
    found = []
    for word in words:
        before, _, name = word.partition("/")
        if not name or "/" in name:
            raise click.UsageError(f"{word!r} is not KIND/NAME")
        found.append(Target(_kind(before), name))
    return tuple(found)


def _kind(word: str) -> Kind:
    found = _WORDS.get(word.lower())
    if found is None:
        raise click.UsageError(f"{word!r} is neither a pod nor a claim: name `pod NAME` or `claim NAME`")
    return found


def complete_targets(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds first, then names of that kind; behind a slash names as well."""
    before = tuple(ctx.params.get("targets") or ())
    word, slash, rest = incomplete.partition("/")
    if slash:
        kind = _WORDS.get(word)
        return [CompletionItem(f"{word}/{name}") for name in _VALUES[kind](ctx, rest)] if kind else []
    if not before:
        return [CompletionItem(one) for one in _OFFERED if one.startswith(incomplete)]
    first = _WORDS.get(before[0])
    if first is None:
        return []
    return [CompletionItem(name) for name in _VALUES[first](ctx, incomplete) if name not in before[1:]]
