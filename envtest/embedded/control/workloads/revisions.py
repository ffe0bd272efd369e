"""Keeps the templates of DaemonSets and StatefulSets as ControllerRevisions, for rollouts and rollbacks.

``kubectl rollout history`` and ``undo`` read them. Go: pkg/controller/history, and constructHistory in
pkg/controller/daemon/update.go. Revisions are never adopted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import CONFLICT, Objects, uid_of
from envtest.embedded.control.workloads.owned_pods import controlled_by, controller_uid
from envtest.embedded.control.workloads.rollout import template_hash

Object = dict[str, Any]
Json = Mapping[str, Any]

POD_LABEL = "controller-revision-hash"
"""The label with the revision of a pod."""


@dataclass(frozen=True, slots=True)
class History:
    """The revision of the present template, the others from the oldest, and how many names were taken."""

    newest: Object
    others: Sequence[Object]
    collisions: int

    def find(self, name: str) -> Object | None:
        """The revision of that name."""
        return next((one for one in (*self.others, self.newest) if one["metadata"]["name"] == name), None)


class Revisions:
    """Reads and writes the revisions of workloads; ``hash_label`` is the label of their hash."""

    def __init__(self, objects: Objects, hash_label: str) -> None:
        self._objects = objects
        self._hash_label = hash_label

    def history(self, workload: Object) -> History:
        """The revisions, after one for the present template is there and has the highest number."""
        stored = self._objects.list_in(kinds.REVISIONS, workload["metadata"]["namespace"])
        mine = sorted(
            (one for one in stored if controller_uid(one) == uid_of(workload)),
            key=lambda one: int(one["revision"]),
        )
        collisions = int((workload.get("status") or {}).get("collisionCount") or 0)
        equal = [one for one in mine if one.get("data") == data_of(workload)]
        others = [one for one in mine if one not in equal[-1:]]
        number = max((int(one["revision"]) for one in others), default=0) + 1
        if not equal:
            newest, collisions = self._created(workload, number, collisions)
        elif equal[-1]["revision"] < number:
            # The workload went back to an earlier template.
            newest = self._objects.replace(kinds.REVISIONS, {**equal[-1], "revision": number})
        else:
            newest = equal[-1]
        return History(newest, others, collisions)

    def delete_oldest(self, revisions: Sequence[Object], count: int) -> None:
        """Delete so many of these revisions, which are sorted from the oldest."""
        for one in revisions[: max(0, count)]:
            self._objects.delete(kinds.REVISIONS, one)

    def _created(self, workload: Object, number: int, collisions: int) -> tuple[Object, int]:
        metadata, template = workload["metadata"], workload["spec"]["template"]
        while True:
            digest = template_hash(template, collisions)
            name = f"{metadata['name']}-{digest}"
            labels = (template.get("metadata") or {}).get("labels") or {}
            revision: Object = {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": name,
                    "labels": {**labels, self._hash_label: digest},
                    "ownerReferences": [controlled_by(workload)],
                    **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
                },
                "data": data_of(workload),
                "revision": number,
            }
            try:
                return self._objects.create(kinds.REVISIONS, metadata["namespace"], revision), collisions
            except Refused as refused:
                if refused.code != CONFLICT:
                    raise
            # Another revision has this name; the number becomes part of the hash.
            collisions += 1


def data_of(workload: Json) -> Object:
    """The patch that gives a workload its present template."""
    return {"spec": {"template": {**workload["spec"]["template"], "$patch": "replace"}}}


def with_template(workload: Json, revision: Json) -> Object:
    """The workload with the template of a revision."""
    template = {key: value for key, value in revision["data"]["spec"]["template"].items() if key != "$patch"}
    return {**workload, "spec": {**workload["spec"], "template": template}}
