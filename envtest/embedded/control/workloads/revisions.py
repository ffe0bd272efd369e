"""Notes on ReplicaSets which revision of a Deployment they are, as ``kubectl rollout history`` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envtest.embedded.control.workloads.rollout import DESIRED, MOST, REVISION

Object = dict[str, Any]

REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
_NOT_COPIED = (
    "kubectl.kubernetes.io/last-applied-configuration",
    *(REVISION, REVISION_HISTORY, DESIRED, MOST),
    "deprecated.deployment.rollback.to",
)
_LONGEST_HISTORY = 2000


def revision_of(replica_set: Mapping[str, Any]) -> int:
    """The revision of a ReplicaSet, 0 without."""
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdecimal() else 0


def with_annotations(deployment: Mapping[str, Any], replica_set: Object, revision: int) -> Object:
    """The ReplicaSet with the annotations of its Deployment, and this revision where it had a lower one.

    A revision that it had before goes into its history (SetNewReplicaSetAnnotations).
    """
    metadata = replica_set["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    given = deployment["metadata"].get("annotations") or {}
    annotations |= {key: value for key, value in given.items() if key not in _NOT_COPIED}
    before = annotations.get(REVISION)
    if revision_of(replica_set) < revision:
        annotations[REVISION] = str(revision)
        if before is not None:
            history = [one for one in annotations.get(REVISION_HISTORY, "").split(",") if one]
            while len(",".join([*history, before])) > _LONGEST_HISTORY and history:
                del history[0]
            annotations[REVISION_HISTORY] = ",".join([*history, before])
    if annotations == (metadata.get("annotations") or {}):
        return replica_set
    return {**replica_set, "metadata": {**metadata, "annotations": annotations}}
