"""What explanations are asked about: a snapshot of one node with four A30, claims and pods."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from gpuctl.explain.answer import explain_pod
from tests.clusters import ClusterView, Explanation, Forbidden, Object, Snapshot, explain_claim, plan_node

NODE = {"metadata": {"name": "node-a", "labels": {"zone": "earth"}}, "spec": {}}
CLASS: Object = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]},
}


class StoredLists(ClusterView):
    """Serves lists by the plural of their kind, and events by their reason; ``refused`` may not be read."""

    def __init__(self, lists: Mapping[str, Sequence[Any] | None], refused: Sequence[str] = ()) -> None:
        self._lists, self._refused = lists, refused
        self.read: list[str] = []

    def listed(self, path: str, **params: str) -> list[Object]:
        kind = path.rpartition("/")[2]
        self.read.append(kind)
        if kind in self._refused:
            raise Forbidden("no", "ask")
        reason = params.get("fieldSelector", "").removeprefix("reason=")
        listed = self._lists.get(kind) or ()
        return [one for one in listed if kind != "events" or one.get("reason", reason) == reason]

    def found(self, path: str) -> Object | None:
        kind, _, name = path.rpartition("/")
        listed = self._lists.get(kind.rpartition("/")[2]) or ()
        return next((one for one in listed if one["metadata"]["name"] == name), None)


@cache
def slices() -> tuple[Object, ...]:
    """What the node publishes; nobody may change it."""
    return plan_node("a30-quad", "node-a", None).slices


def snapshot(**changed: Any) -> Snapshot:
    """One node with four A30; other lists that are given are read when they matter."""
    found: Object = {"nodes": (NODE,), "slices": slices(), "classes": (CLASS,), "claims": ()}
    found |= {name: changed.pop(name) for name in tuple(changed) if name in found}
    return Snapshot(**found, view=StoredLists(changed))


def claim(name: str = "mine", *, count: int = 1, **status: Any) -> Object:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        **({"status": status} if status else {}),
    }


def held(name: str, *devices: str) -> Object:
    results = [
        {"request": "gpus", "driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": device}
        for device in devices
    ]
    users = [{"resource": "pods", "name": f"{name}-pod", "uid": "u"}]
    return claim(name, allocation={"devices": {"results": results}}, reservedFor=users)


def pod(phase: str = "Pending", **spec: Any) -> Object:
    return {
        "metadata": {"name": "train", "namespace": "default", "uid": "pod"},
        "spec": {"containers": [{"name": "main"}], **spec},
        "status": {"phase": phase},
    }


def shown(told: Explanation) -> str:
    """The verdict, and what is said."""
    lines = [f"{told.verdict}: {told.summary}"]
    for one in told.findings:
        lines += [f"- {one.kind}: {one.message}", *([f"  {one.remedy}"] if one.remedy else [])]
    lines += [f"not read: {', '.join(told.unread)}"] if told.unread else []
    return "\n".join(lines)


Later = Callable[[], Explanation]
"""Explains something once its text is wanted."""


def of_claim(asked: Object, **state: Any) -> Later:
    return lambda: explain_claim(asked, snapshot(**state))


def of_pod(waiting: Object, **state: Any) -> Later:
    return lambda: explain_pod(waiting, snapshot(**state))
