"""Says what kube-apiserver 1.37 finds wrong with a pod, new or changed, and with the template of a workload.

The rules are those of ValidatePodCreate and ValidatePodUpdate in pkg/apis/core/validation, with the gates
that are on by default. Pods are taken with their defaults (``kubernetes_rules.pod_defaults``).

Let through without a look are the contents of probes, lifecycle hooks, security contexts, resize policies,
pod affinity, topology spread constraints, DNS configuration, host aliases, overridden host names, overhead,
ephemeral containers, scheduling and eviction groups, variables from files, the annotations of AppArmor,
seccomp and tolerations, and of volumes all but emptyDir, hostPath, secret, configMap, persistentVolumeClaim
and image. Nor are there the rules for Windows.
"""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import FieldError, forbidden, unique
from kubernetes_rules.validation.metadata import metadata_errors, metadata_update_errors
from kubernetes_rules.validation.pods.annotations import annotation_errors
from kubernetes_rules.validation.pods.changes import changed_annotation_errors, changed_spec_errors
from kubernetes_rules.validation.pods.containers import untrimmed_image_errors
from kubernetes_rules.validation.pods.spec import pod_spec_errors
from kubernetes_rules.validation.pods.templates import workload_errors

__all__ = ["pod_errors", "pod_update_errors", "workload_errors"]

Object = dict[str, Any]


def pod_errors(pod: Object) -> list[FieldError]:
    """The errors of a new pod."""
    spec = pod.get("spec") or {}
    errors = _content_errors(pod)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden("spec.nodeName", text))
    return unique(errors)


def pod_update_errors(new: Object, old: Object) -> list[FieldError]:
    """The errors of ``new`` in the place of ``old``: what is wrong with it, and what may not change."""
    errors = metadata_update_errors(new.get("metadata") or {}, old["metadata"])
    errors += _content_errors(new)
    errors += changed_annotation_errors(new.get("metadata") or {}, old["metadata"])
    return unique(errors + changed_spec_errors(new.get("spec") or {}, old.get("spec") or {}))


def _content_errors(pod: Object) -> list[FieldError]:
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    errors = metadata_errors(metadata, namespaced=True)
    errors += annotation_errors(metadata.get("annotations") or {}, spec, "metadata.annotations")
    errors += pod_spec_errors(spec, metadata, "spec")
    for kind in ("containers", "initContainers"):
        errors += untrimmed_image_errors(spec.get(kind) or [], f"spec.{kind}")
    return errors
