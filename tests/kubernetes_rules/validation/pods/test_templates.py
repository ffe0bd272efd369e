"""Each kind of workload takes the restart policies that make sense for it, as Kubernetes has it."""

from __future__ import annotations

import pytest

from kubernetes_rules.defaults import defaulted_template
from kubernetes_rules.validation.pods import workload_errors


def errors(kind: str, **spec: object) -> list[str]:
    template = defaulted_template({"spec": {"containers": [{"name": "main", "image": "i"}], **spec}})
    return [str(error) for error in workload_errors({"kind": kind, "spec": {"template": template}})]


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_pods_that_run_without_end_are_always_restarted(kind: str) -> None:
    assert errors(kind) == []
    (error,) = errors(kind, restartPolicy="Never")
    assert 'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"' in error
    (error,) = errors(kind, activeDeadlineSeconds=5)
    assert "spec.template.spec.activeDeadlineSeconds: Forbidden" in error


def test_pods_of_a_job_end() -> None:
    assert errors("Job", restartPolicy="Never") == []
    assert errors("Job", restartPolicy="OnFailure", activeDeadlineSeconds=5) == []
    (error,) = errors("Job")
    assert error == 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
