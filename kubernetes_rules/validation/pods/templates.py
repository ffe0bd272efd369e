"""Checks the templates from which workloads make their pods."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import FieldError, forbidden, not_supported, required, unique
from kubernetes_rules.validation.metadata import label_errors
from kubernetes_rules.validation.pods.annotations import annotation_errors
from kubernetes_rules.validation.pods.spec import pod_spec_errors

Object = dict[str, Any]

_MAKERS = {"Deployment": "ReplicaSet", "ReplicaSet": "ReplicaSet", "DaemonSet": "DaemonSet"}
"""The kinds whose pods run without end, and which of Kubernetes' kinds then makes them."""

_JOB_POLICIES = ("OnFailure", "Never")


def workload_errors(workload: Object) -> list[FieldError]:
    """The errors of the template of a Deployment, a ReplicaSet, a DaemonSet or a Job, on create and update.

    The template has its defaults. The other fields of workloads are let through.
    """
    template, path = (workload.get("spec") or {}).get("template") or {}, "spec.template"
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    errors = label_errors(metadata, path)
    errors += annotation_errors(metadata.get("annotations") or {}, spec, f"{path}.annotations")
    errors += pod_spec_errors(spec, None, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", text))
    errors += _policy_errors(workload["kind"], spec.get("restartPolicy") or "", f"{path}.spec.restartPolicy")
    if workload["kind"] in _MAKERS and spec.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {_MAKERS[workload['kind']]} is not Supported"
        errors.append(forbidden(f"{path}.spec.activeDeadlineSeconds", text))
    return unique(errors)


def _policy_errors(kind: str, policy: str, path: str) -> list[FieldError]:
    """A Job has to say whether a container that failed is started again; no default of it would do."""
    if kind != "Job":
        return [] if policy == "Always" else [not_supported(path, policy, ("Always",))]
    if policy in ("", "Always"):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    return [] if policy in _JOB_POLICIES else [not_supported(path, policy, _JOB_POLICIES)]
