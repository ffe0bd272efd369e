"""Finds the errors that kube-apiserver 1.37 finds in a pod, new or updated, or in a workload's template.

The rules are those of ValidatePodCreate and ValidatePodUpdate in pkg/apis/core/validation, with the gates
that are on by default. Pods have their defaults (``kubernetes_rules.defaults``).

Not checked: probes, lifecycle hooks, security contexts, resize policies, pod affinity, topology spread
constraints, DNS configuration, host aliases, overridden host names, overhead, ephemeral containers,
scheduling and eviction groups, variables from files, the annotations of AppArmor, seccomp and tolerations,
rules for Windows, and volumes other than emptyDir, hostPath, secret, configMap, persistentVolumeClaim and
image.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubernetes_rules.validation.field import FieldError, forbidden, invalid, not_supported, required, unique
from kubernetes_rules.validation.metadata import label_errors, metadata_errors, metadata_update_errors
from kubernetes_rules.validation.pods.changes import changed_annotation_errors, changed_spec_errors
from kubernetes_rules.validation.pods.claims import MIRROR
from kubernetes_rules.validation.pods.containers import untrimmed_image_errors
from kubernetes_rules.validation.pods.spec import pod_spec_errors

Object = dict[str, Any]

_MAKERS = {
    **dict.fromkeys(("Deployment", "ReplicaSet"), "ReplicaSet"),
    "DaemonSet": "DaemonSet",
    "StatefulSet": "StatefulSet",
}
"""The kinds whose pods run without end, and the kind that error messages name."""

_JOB_POLICIES = ("OnFailure", "Never")

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_INT32 = range(-(2**31), 2**31)


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
    """The errors of ``new`` as an update of ``old``: what is wrong now, and forbidden changes."""
    errors = metadata_update_errors(new.get("metadata") or {}, old["metadata"])
    errors += _content_errors(new)
    errors += changed_annotation_errors(new.get("metadata") or {}, old["metadata"])
    return unique(errors + changed_spec_errors(new.get("spec") or {}, old.get("spec") or {}))


def _content_errors(pod: Object) -> list[FieldError]:
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    errors = metadata_errors(metadata, namespaced=True)
    errors += _annotation_errors(metadata.get("annotations") or {}, spec, "metadata.annotations")
    errors += pod_spec_errors(spec, metadata, "spec")
    for kind in ("containers", "initContainers"):
        errors += untrimmed_image_errors(spec.get(kind) or [], f"spec.{kind}")
    return errors


def workload_errors(workload: Object) -> list[FieldError]:
    """The errors of the template of a workload, on create and update.

    The template has its defaults. Other fields of the workload are not checked.
    """
    template, path = (workload.get("spec") or {}).get("template") or {}, "spec.template"
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    if workload["kind"] == "StatefulSet":
        spec = _as_its_controller_makes_it(spec, workload["spec"].get("volumeClaimTemplates") or ())
    errors = label_errors(metadata, path)
    errors += _annotation_errors(metadata.get("annotations") or {}, spec, f"{path}.annotations")
    errors += pod_spec_errors(spec, None, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", text))
    errors += _policy_errors(workload["kind"], spec.get("restartPolicy") or "", f"{path}.spec.restartPolicy")
    if workload["kind"] in _MAKERS and spec.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {_MAKERS[workload['kind']]} is not Supported"
        errors.append(forbidden(f"{path}.spec.activeDeadlineSeconds", text))
    return unique(errors)


def _as_its_controller_makes_it(spec: Object, claims: Iterable[Object]) -> Object:
    """The spec of a template of a StatefulSet with a volume for each claim, without a name of the host."""
    made = {
        one["metadata"]["name"]: {
            "name": one["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": one["metadata"]["name"]},
        }
        for one in claims
    }
    own = [one for one in spec.get("volumes") or () if one.get("name") not in made]
    kept = {key: value for key, value in spec.items() if key not in ("hostname", "subdomain", "volumes")}
    volumes = [*made.values(), *own]
    return {**kept, **({"volumes": volumes} if volumes else {})}


def _policy_errors(kind: str, policy: str, path: str) -> list[FieldError]:
    """The errors of ``restartPolicy``."""
    # A Job has to choose one: with the default, Always, its pods would never end.
    if kind != "Job":
        return [] if policy == "Always" else [not_supported(path, policy, ("Always",))]
    if policy in ("", "Always"):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    return [] if policy in _JOB_POLICIES else [not_supported(path, policy, _JOB_POLICIES)]


def _annotation_errors(annotations: Object, spec: Object, path: str) -> list[FieldError]:
    """The errors of the values of annotations that Kubernetes reads; their keys are checked elsewhere."""
    errors: list[FieldError] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid(f"{path}[{MIRROR}]", annotations[MIRROR], text))
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_cost(cost):
        errors.append(invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    return errors


def _is_cost(text: str) -> bool:
    """Whether the text is a 32 bit integer without a plus and without leading zeros."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return False
    return (text == "0" or not text.startswith("0")) and int(text) in _INT32
