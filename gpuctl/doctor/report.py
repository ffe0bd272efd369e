"""Runs all checks, of the cluster and of a node from inside, and prints their results for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from driver.errors import ConfigError
from driver.kube.client import KubeClient
from gpuctl.doctor.check import Result, Status, counted, run_checks
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.outside.seen import ClusterSeen

_WORDS: dict[Status, str] = {"ok": "ok", "warn": "warn", "fail": "FAIL", "skipped": "skipped"}
_SHOWN = 6
"""How many details of a result are shown without ``-o wide``."""

_INDENT = " " * 8


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What `gpuctl doctor` prints: what each check found."""

    results: tuple[Result, ...]


def has_failed(results: Sequence[Result]) -> bool:
    """Whether a check failed."""
    return any(one.status == "fail" for one in results)


def look_locally(places: Places, name: str) -> tuple[Result, ...]:
    """The results of the node that this process runs on."""
    from gpuctl.doctor.inside.checks import INSIDE
    from gpuctl.doctor.inside.reading import look_at_node

    return run_checks(name, INSIDE, look_at_node(places))


def look_from_outside(
    client: KubeClient, node: str | None, kubeconfig: Path | None, context: str | None, *, probe: bool = False
) -> tuple[Result, ...]:
    """The results of the cluster, and of the node if one is named; ``probe`` tries each class, too.

    Raises Unreachable, Unauthorized, and ConfigError for a node that does not exist.
    """
    from gpuctl.doctor.outside.checks import check_cluster
    from gpuctl.doctor.outside.reading import look_at_cluster, offered_to_machines, read_configurations

    seen = look_at_cluster(client, node)
    results = check_cluster(seen)
    if node is not None:
        offers = offered_to_machines(seen, node, read_configurations(client, seen.namespaces))
        results += _inside_pod(seen, node, offers, kubeconfig, context)
    if probe:
        from gpuctl.cli.output import say
        from gpuctl.doctor.tier_probes import probe_tiers

        # On stderr: they take long, and stdout may be JSON.
        results += (*probe_tiers(client, seen, node, partial(say, err=True)),)
    return results


def _inside_pod(
    seen: ClusterSeen, node: str, offers: tuple[str, ...], kubeconfig: Path | None, context: str | None
) -> tuple[Result, ...]:
    from gpuctl.cli.unread import Unread
    from gpuctl.doctor.outside.publishing import CORRECT_DAEMON_SET, excluding
    from gpuctl.doctor.pod_exec import plugin_pod, run_in_pod

    place = f"node/{node}"
    target = plugin_pod(seen.pods, node)
    if isinstance(target, Unread):
        kept_away = excluding(seen, node)
        way_out = "check that the plugin's pod runs there, or run `gpuctl doctor --local` on the node"
        way_out = CORRECT_DAEMON_SET if kept_away else way_out
        return (Result(place, "inside", "warn", target.why, way_out, tuple(kept_away)),)
    try:
        # The pod's account may not read ConfigMaps, so --offers hands over what the node configuration says.
        words = ("doctor", "--local", "-o", "json", *(("--offers", ",".join(offers)) if offers else ()))
        return read_results(run_in_pod(target, words, kubeconfig, context), place)
    except ConfigError as error:
        return (Result(place, "inside", "warn", error.what, error.way_out),)


def read_results(text: bytes, place: str) -> tuple[Result, ...]:
    """The results that a doctor in a pod printed, for a place; raises ConfigError for anything else.

    The pod may run another version, so unknown fields are ignored.
    """
    try:
        document: Any = json.loads(text)
        found = tuple(_result(place, one) for one in document["results"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"gpuctl in the pod of {place} printed no doctor report ({error})",
            "check that the pod's image has about the same version as this gpuctl",
        ) from error
    return found


def _result(place: str, one: Any) -> Result:
    # The node may be hostile: what it printed is checked, and converted to text.
    status: Status = one["status"]
    if status not in get_args(Status):
        raise ValueError(f"there is no status {status!r}")
    details = tuple(map(str, one.get("details") or ()))
    return Result(
        place, str(one["check"]), status, str(one["message"]), str(one.get("wayOut") or "") or None, details
    )


def problems(results: Sequence[Result]) -> str:
    """What is wrong, what was tried, and in a line how many other checks there were."""
    shown = [one for one in results if one.status in ("warn", "fail") or one.check == "probe"]
    counts = Counter(one.status for one in results if one not in shown)
    rest = f"{counted(counts['ok'], 'check')} passed, {counts['skipped']} skipped: -o wide lists them"
    return "\n".join((*_by_place(shown, wide=False), *([""] if shown else []), rest))


def picture(results: Sequence[Result], *, wide: bool) -> str:
    """All results by their place, then how many there are of each status; ``wide`` shows all details."""
    counts = Counter(one.status for one in results)
    numbers = ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items() if counts[status])
    return "\n".join((*_by_place(results, wide=wide), "", f"{counted(len(results), 'check')}: {numbers}"))


def _by_place(results: Sequence[Result], *, wide: bool) -> list[str]:
    lines: list[str] = []
    place = None
    for one in results:
        if one.place != place:
            place = one.place
            lines += [place] if not lines else ["", place]
        lines += _lines(one, wide=wide)
    return lines


def _lines(one: Result, *, wide: bool) -> Iterator[str]:
    yield f"{_WORDS[one.status]:<7} {one.check}: {one.message}"
    if one.status in ("warn", "fail") or wide:
        shown = one.details if wide else one.details[:_SHOWN]
        yield from (f"{_INDENT}- {line}" for line in shown)
        if len(shown) < len(one.details):
            yield f"{_INDENT}- and {len(one.details) - len(shown)} more; -o wide shows all"
    if one.way_out:
        yield f"{_INDENT}what to do: {one.way_out}"
