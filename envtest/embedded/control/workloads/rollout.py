"""Works out the size of each ReplicaSet of a Deployment during rollouts and scaling.

Go: pkg/controller/deployment/util, and rolling.go and sync.go beside it. Deployments and ReplicaSets are JSON
as apps/v1 has them, with their defaults.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
# FNV-1a with 32 bits, as hash/fnv of Go.
_FNV_BASIS, _FNV_PRIME = 2166136261, 16777619


def size(workload: Json) -> int:
    """How many pods a Deployment or a ReplicaSet wants."""
    return int(workload["spec"].get("replicas", 1))


def total(sets: Iterable[Json], field: str) -> int:
    """The sum of a number in the status of ReplicaSets."""
    return sum(int((one.get("status") or {}).get(field, 0)) for one in sets)


def sizes(sets: Iterable[Json]) -> int:
    """How many pods ReplicaSets want together."""
    return sum(map(size, sets))


def by_age(sets: Iterable[Object]) -> list[Object]:
    """ReplicaSets, the oldest first."""
    return sorted(sets, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))


def active(sets: Iterable[Object]) -> list[Object]:
    """The ReplicaSets that want pods."""
    return [one for one in sets if size(one)]


def split(deployment: Json, sets: Iterable[Object]) -> tuple[Object | None, list[Object]]:
    """The ReplicaSet that has the Deployment's template, None before there is one, and all others."""
    wanted, aged = _plain(deployment["spec"]["template"]), by_age(sets)
    new = next((one for one in aged if _plain(one["spec"]["template"]) == wanted), None)
    return new, [one for one in aged if one is not new]


def template_hash(template: Json, collisions: int) -> str:
    """The label that distinguishes the pods of one template from those of another; it may collide.

    Kubernetes hashes the template as Go prints it, so its labels differ from these.
    """
    text = json.dumps(_plain(template), sort_keys=True) + (str(collisions) if collisions else "")
    value = _FNV_BASIS
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) % 2**32
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def is_rolling(deployment: Json) -> bool:
    """Whether old pods go while new ones come."""
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def most_surge(deployment: Json) -> int:
    """How many pods there may be above the wanted number."""
    return _bounds(deployment)[0] if is_rolling(deployment) else 0


def most_unavailable(deployment: Json) -> int:
    """How many pods may be missing while it is rolled out."""
    wanted = size(deployment)
    return min(_bounds(deployment)[1], wanted) if is_rolling(deployment) and wanted else 0


def new_size(deployment: Json, sets: Sequence[Json], new: Json) -> int:
    """The size that the new ReplicaSet may have now; ``sets`` are all, itself included."""
    if not is_rolling(deployment):
        return size(deployment)
    room = size(deployment) + _bounds(deployment)[0] - sizes(sets)
    return size(new) + max(0, min(room, size(deployment) - size(new)))


def unhealthy_shrunk(old: Sequence[Object], most: int) -> dict[str, int]:
    """New sizes, by name, of old ReplicaSets that lose unavailable pods, at most ``most`` together."""
    found = {}
    for one in by_age(old):
        gone = min(most, size(one) - total([one], "availableReplicas"))
        if gone > 0:
            found[one["metadata"]["name"]] = size(one) - gone
            most -= gone
    return found


def old_shrunk(deployment: Json, old: Sequence[Object], new: Json) -> dict[str, int]:
    """New sizes, by name, of old ReplicaSets that lose pods while enough others are available."""
    least = size(deployment) - most_unavailable(deployment)
    most = total([*old, new], "availableReplicas") - least
    found = {}
    for one in by_age(active(old)):
        gone = min(size(one), most)
        if gone > 0:
            found[one["metadata"]["name"]] = size(one) - gone
            most -= gone
    return found


def most_to_shrink(deployment: Json, old: Sequence[Object], new: Json) -> int:
    """How many pods of old ReplicaSets may go; new pods that are not available count as missing."""
    least = size(deployment) - most_unavailable(deployment)
    missing = size(new) - total([new], "availableReplicas")
    return sizes([*old, new]) - least - missing


def is_saturated(deployment: Json, new: Json | None) -> bool:
    """Whether the new ReplicaSet has all wanted pods, and all are available."""
    wanted = size(deployment)
    if new is None or (new["metadata"].get("annotations") or {}).get(DESIRED) != str(wanted):
        return False
    return size(new) == wanted == total([new], "availableReplicas")


def proportional(deployment: Json, sets: Sequence[Object]) -> dict[str, int]:
    """The sizes, by name, of the active ReplicaSets of a Deployment that is scaled while it is rolled out."""
    wanted = size(deployment)
    allowed = wanted + most_surge(deployment) if wanted else 0
    change, added = allowed - sizes(sets), 0
    aged = by_age(sets)
    ordered = sorted(reversed(aged) if change > 0 else aged, key=size, reverse=True)
    found = {}
    for one in ordered:
        part = _part(deployment, one, change, added)
        found[one["metadata"]["name"]] = size(one) + part
        added += part
    if ordered:
        first = ordered[0]["metadata"]["name"]
        # What is left over by rounding goes to the largest.
        found[first] = max(0, found[first] + change - added)
    return found


def _part(deployment: Json, one: Json, change: int, added: int) -> int:
    """How many pods of a change a ReplicaSet gets (or loses, below 0)."""
    if change in (0, added):
        return 0
    wanted, rest = size(deployment), change - added
    # In proportion to the size that the Deployment had when the ReplicaSet was sized last.
    before = int((one["metadata"].get("annotations") or {}).get(MOST) or 0)
    before = before or int((deployment.get("status") or {}).get("replicas", 0))
    if not wanted:
        part = -size(one)
    elif not before:
        part = 0
    else:
        part = _rounded(size(one) * (wanted + most_surge(deployment)) / before) - size(one)
    return min(part, rest) if change > 0 else max(part, rest)


def _bounds(deployment: Json) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods; maxUnavailable is 1 where both are rounded to 0."""
    limits = deployment["spec"]["strategy"]["rollingUpdate"]
    surge = _scaled(limits["maxSurge"], size(deployment), up=True)
    unavailable = _scaled(limits["maxUnavailable"], size(deployment), up=False)
    return surge, unavailable if surge or unavailable else 1


def _scaled(value: int | str, wanted: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    # maxSurge is rounded up, maxUnavailable down.
    share = int(value.removesuffix("%")) * wanted / 100
    return math.ceil(share) if up else math.floor(share)


def _rounded(number: float) -> int:
    """Half away from zero, as Go's math.Round."""
    return int(math.copysign(math.floor(abs(number) + 0.5), number))


def _plain(template: Json) -> Any:
    """A template without the label of its hash, and without empty fields."""
    found = _without_empty(template)
    labels = (found.get("metadata") or {}).get("labels")
    if labels is None:
        return found
    kept = {key: value for key, value in labels.items() if key != HASH_LABEL}
    return _without_empty({**found, "metadata": {**found["metadata"], "labels": kept}})


def _without_empty(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _without_empty(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one not in (None, {}, [])}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value
