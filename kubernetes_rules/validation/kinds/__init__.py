"""Finds the errors that kube-apiserver 1.37 finds in objects of all built-in kinds, new or updated.

Objects are as the API server has decoded them and with their defaults. Metadata is checked of every kind, the
rest as far as ``LEFT_OUT`` does not name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_rules.validation import names
from kubernetes_rules.validation.dra_kinds import errors_of, update_errors_of
from kubernetes_rules.validation.field import FieldError, unique
from kubernetes_rules.validation.kinds import cluster, configuration, network, rights
from kubernetes_rules.validation.metadata import (
    changed_metadata_errors,
    metadata_errors,
    metadata_update_errors,
    name_errors,
)
from kubernetes_rules.validation.pods import pod_errors, pod_update_errors, workload_errors
from kubernetes_rules.validation.workloads import budget_errors, controller_errors, revision_errors

Object = dict[str, Any]
Check = Callable[[Object, Object | None], list[FieldError]]
"""Takes an object and the one that it replaces (None: it is new), returns the errors beside the metadata."""

LEFT_OUT = (
    (
        "Pod",
        "probes, lifecycle hooks, security contexts, affinity to pods, topology spread, DNS, host aliases",
    ),
    ("Pod", "volumes other than emptyDir, hostPath, secret, configMap, persistentVolumeClaim and image"),
    ("Pod", "overhead, ephemeral containers, resize, rules for Windows, Pod Security; most of its status"),
    (
        "Deployment, ReplicaSet, DaemonSet, StatefulSet, Job",
        "the status, claims for volumes, and the policies of a Job for failure and success",
    ),
    ("Service", "addresses, IP families and health check ports: they are not allocated as in Kubernetes"),
    ("Service", "the status"),
    ("every kind", "warnings, but those of names of pods and workloads"),
    ("Node", "pod CIDRs, configuration sources, declared features, and resources in the status"),
    ("RuntimeClass", "all but the metadata"),
    ("Endpoints, EndpointSlice", "topology and hints"),
    ("every kind", "managedFields that a client writes"),
)
"""What is not checked on purpose: the kind and the part of it."""

_DRA = "resource.k8s.io"
_EVENTS = "events.k8s.io"
_NAMES = {
    "Namespace": lambda text: names.dns_label(text, "characters"),
    "Service": lambda text: names.dns_label(text, "characters"),
    "StatefulSet": lambda text: names.dns_label(text, "characters"),
    **dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), names.path_segment),
    # Of budgets Kubernetes checks no metadata but what it checks of every kind.
    "PodDisruptionBudget": names.path_segment,
}
"""The rules of names for kinds that are not named by a subdomain."""

_NAMES_OF_HOSTS = frozenset({"Pod", "Deployment", "ReplicaSet", "Job"})
_CHECKED_AGAIN = frozenset(
    {
        *("ConfigMap", "Secret", "ServiceAccount", "Endpoints", "EndpointSlice"),
        *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    }
)
"""The kinds whose metadata is checked at an update as at the creation: generateName can change."""

_ANY_FINALIZERS = frozenset({"Lease", "PodDisruptionBudget"})
"""The kinds that take finalizers of any name."""


def _workload(item: Object, old: Object | None) -> list[FieldError]:
    return workload_errors(item) + controller_errors(item, old)


_CHECKS: dict[str, Check] = {
    "ConfigMap": configuration.config_map_errors,
    "Secret": configuration.secret_errors,
    "Service": network.service_errors,
    "NetworkPolicy": network.policy_errors,
    "Endpoints": network.endpoints_errors,
    "EndpointSlice": network.endpoint_slice_errors,
    "Role": rights.role_errors,
    "ClusterRole": rights.role_errors,
    "RoleBinding": rights.binding_errors,
    "ClusterRoleBinding": rights.binding_errors,
    "PriorityClass": cluster.priority_class_errors,
    "LimitRange": cluster.limit_range_errors,
    "ResourceQuota": cluster.quota_errors,
    "Lease": cluster.lease_errors,
    "Namespace": cluster.namespace_errors,
    "Node": cluster.node_errors,
    "PodDisruptionBudget": lambda item, _: budget_errors(item),
    **dict.fromkeys(("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job"), _workload),
    "ControllerRevision": revision_errors,
}


def created_errors(group: str, item: Object, *, namespaced: bool) -> list[FieldError]:
    """The errors of a new object of a built-in kind of ``group``."""
    kind, metadata = item["kind"], item["metadata"]
    if group == _DRA:
        errors = errors_of(item)
    elif kind == "Pod":
        errors = pod_errors(item)
    elif kind == "Event":
        errors = cluster.event_errors(item, None, is_strict=group == _EVENTS)
    else:
        errors = metadata_errors(
            metadata,
            namespaced=namespaced,
            name_rule=_NAMES.get(kind, name_errors),
            standard_finalizers=kind not in _ANY_FINALIZERS,
        )
        errors += _own(kind, item, None)
    if kind == "Event" and not errors:
        # What holds for every kind; the rules of all other kinds are stricter.
        errors = metadata_errors(
            metadata, namespaced=namespaced, name_rule=names.path_segment, standard_finalizers=False
        )
    return unique(errors)


def updated_errors(group: str, new: Object, old: Object, *, namespaced: bool) -> list[FieldError]:
    """The errors of ``new`` as an update of ``old``, but not of its status."""
    kind = new["kind"]
    errors = changed_metadata_errors(new["metadata"], old["metadata"], namespaced=namespaced)
    if group == _DRA:
        errors += update_errors_of(new, old)
    elif kind == "Pod":
        errors += pod_update_errors(new, old)
    elif kind == "Event":
        errors += cluster.event_errors(new, old, is_strict=group == _EVENTS)
    else:
        errors += metadata_update_errors(
            new["metadata"], old["metadata"], standard_finalizers=kind not in _ANY_FINALIZERS
        )
        if kind in _CHECKED_AGAIN:
            errors += metadata_errors(
                new["metadata"], namespaced=namespaced, name_rule=_NAMES.get(kind, name_errors)
            )
        errors += _own(kind, new, old)
    return unique(errors)


def name_warnings(kind: str, name: str) -> list[str]:
    """What Kubernetes warns of a name that a new object may have, but should not."""
    where = "the Pod's hostname" if kind == "Pod" else "Pod names and hostnames"
    wrong = names.dns_label(name, "characters") if kind in _NAMES_OF_HOSTS else []
    text = "which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: this is used in {where}, {text}: [{' '.join(wrong)}]"] if wrong else []


def _own(kind: str, item: Object, old: Object | None) -> list[FieldError]:
    check = _CHECKS.get(kind)
    return [] if check is None else check(item, old)
