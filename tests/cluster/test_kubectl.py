"""kubectl works against the cluster that ``gpuctl demo --keep`` leaves running, as with a real one."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters import find_assets

PROJECT = Path(__file__).resolve().parents[2]
MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpu.nvidia.com}
---
apiVersion: v1
kind: Pod
metadata: {name: train, labels: {app: train}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/busybox:1
    resources: {claims: [{name: gpu}]}
  resourceClaims:
  - {name: gpu, resourceClaimTemplateName: one-gpu}
"""

DEMO = ("--machine", "a30-quad", "--keep", "-o", "json")

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """Runs kubectl against a kept demo and returns its stdout, or stderr; a failure carries its words."""
    binary = find_assets(request.config.getoption("--kubernetes")).binary("kubectl")
    with tempfile.TemporaryDirectory(prefix="kd", dir="/tmp") as folder:
        # A test run in the background ignores Ctrl-C, and what it starts would, too.
        heeding = ("env", "--default-signal=INT")
        demo = subprocess.Popen(
            [*heeding, sys.executable, "-m", "gpuctl", "demo", *DEMO],
            cwd=PROJECT,
            env={**os.environ, "TMPDIR": folder},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert demo.stderr is not None
        line = next(line for line in demo.stderr if "KUBECONFIG=" in line)
        kubeconfig = line.split("KUBECONFIG=")[1].split()[0]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where kubectl-gpu lies

        def run(*arguments: str, given: str | None = None, errors: bool = False) -> str:
            done = subprocess.run(
                [binary, *arguments],
                input=given,
                env={"HOME": folder, "PATH": path, "KUBECONFIG": kubeconfig},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if done.returncode:
                raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
            return done.stderr if errors else done.stdout

        yield run
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
        assert demo.returncode == 0


def columns(text: str) -> list[str]:
    """The heads of a table."""
    return text.splitlines()[0].split()


def test_get_prints_the_columns_that_people_know(kubectl: Kubectl) -> None:
    assert columns(kubectl("get", "nodes")) == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    slices = kubectl("get", "resourceslices")
    assert columns(slices) == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert "gpu.nvidia.com" in slices
    assert "gpu.nvidia.com" in kubectl("get", "deviceclasses", "-o", "name")
    assert json.loads(kubectl("get", "resourceslices", "-o", "json"))["items"][0]["kind"] == "ResourceSlice"
    assert "resourceclaims" in kubectl("api-resources", "--api-group=resource.k8s.io")


def test_a_pod_is_applied_waited_for_described_and_deleted(kubectl: Kubectl) -> None:
    first = kubectl("apply", "-f", "-", given=MANIFEST)
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/train", "--timeout=30s")
    again = kubectl("apply", "-f", "-", given=MANIFEST)

    assert "pod/train created" in first
    assert "pod/train unchanged" in again
    assert columns(kubectl("get", "pods", "-o", "wide"))[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    described = kubectl("describe", "pod", "train")
    assert "Successfully assigned default/train to" in described
    claim = kubectl("get", "resourceclaims", "-o", "name").strip()
    assert "Driver:" in kubectl("describe", claim)
    assert "Scheduled" in kubectl("events", "--for", "pod/train")
    kubectl("label", "pod", "train", "tier=large")
    kubectl("annotate", "pod", "train", "example.com/note=seen")
    kubectl("patch", "pod", "train", "-p", '{"metadata":{"labels":{"tier":"small"}}}')
    assert kubectl("get", "pods", "-l", "tier=small", "-o", "name") == "pod/train\n"

    deleted = kubectl("delete", "-f", "-", given=MANIFEST)
    kubectl("wait", "--for=delete", claim, "--timeout=30s")

    assert 'pod "train" deleted' in deleted
    with pytest.raises(AssertionError, match=r'Error from server \(NotFound\): pods "train" not found'):
        kubectl("get", "pod", "train")


def test_logs_show_which_gpu_a_pod_sees(kubectl: Kubectl) -> None:
    kubectl("delete", "-f", "-", "--ignore-not-found", given=MANIFEST)
    talking = MANIFEST.replace(
        "    image:", "    command: [sh, -c, 'nvidia-smi -L && sleep infinity']\n    image:"
    )
    kubectl("apply", "-f", "-", given=talking)
    kubectl("wait", "--for=condition=Ready", "pod/train", "--timeout=30s")
    first = kubectl("logs", "train", "--limit-bytes=4")
    lines = kubectl("logs", "-l", "app=train", "--prefix").splitlines()

    assert first == "GPU "
    assert len(lines) == 1
    assert lines[0].startswith("[pod/train/main] GPU 0: NVIDIA A30 (UUID: GPU-")
    with pytest.raises(AssertionError, match='previous terminated container "main" in pod "train" not found'):
        kubectl("logs", "train", "--previous")
    with pytest.raises(AssertionError, match="container other is not valid for pod train"):
        kubectl("logs", "train", "-c", "other")
    kubectl("delete", "-f", "-", given=talking)


def test_what_is_wrong_is_refused_in_the_words_of_a_real_server(kubectl: Kubectl) -> None:
    kubectl("delete", "-f", "-", "--ignore-not-found", given=MANIFEST)
    wrong = MANIFEST.replace("deviceClassName: gpu.nvidia.com", "deviceClassName: Not_A_Name")
    with pytest.raises(AssertionError, match=r"spec.spec.devices.requests\[0\].exactly.deviceClassName"):
        kubectl("apply", "-f", "-", given=wrong)
    with pytest.raises(AssertionError, match=r"unknown field \"spec.hostNetwrk\""):
        kubectl(
            "apply", "-f", "-", given=MANIFEST.replace("spec:\n  term", "spec:\n  hostNetwrk: true\n  term")
        )
    with pytest.raises(AssertionError, match="the server doesn't have a resource type"):
        kubectl("get", "unicorns")
    with pytest.raises(AssertionError, match=r"namespaces \"nowhere\" not found"):
        kubectl("create", "configmap", "x", "-n", "nowhere")


def test_what_is_shipped_is_applied_with_a_warning_where_it_has_no_effect(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(PROJECT / "deploy/rbac.yaml"))
    warned = kubectl("apply", "-f", str(PROJECT / "deploy/admission-policy.yaml"), errors=True)
    kubectl("apply", "-f", str(PROJECT / "deploy/webhook.yaml"))

    assert "Warning: a ValidatingAdmissionPolicy has no effect in the embedded cluster" in warned
    assert "gpu-dra" in kubectl("get", "clusterroles,validatingadmissionpolicies", "-o", "name")
    assert columns(kubectl("get", "deployments", "-n", "gpu-dra"))[:2] == ["NAME", "READY"]
    # Other tests would wait for a webhook that nobody serves.
    kubectl("delete", "-f", str(PROJECT / "deploy/webhook.yaml"))


def test_a_budget_forbids_evictions_as_kubectl_drain_meets_them(kubectl: Kubectl) -> None:
    kubectl("delete", "-f", "-", "--ignore-not-found", given=MANIFEST)
    kubectl("apply", "-f", "-", given=MANIFEST)
    kubectl("wait", "--for=condition=Ready", "pod/train", "--timeout=30s")
    kubectl("create", "pdb", "train", "--selector=app=train", "--min-available=1")
    kubectl("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb/train", "--timeout=30s")
    node = kubectl("get", "nodes", "-o", "name").strip()

    # The pods of other tests have budgets of their own.
    drain = ("drain", node, "--force", "--timeout=3s", "--pod-selector=app=train")
    with pytest.raises(AssertionError, match="it would violate the pod's disruption budget"):
        kubectl(*drain)
    kubectl("delete", "pdb", "train")
    assert "evicted" in kubectl(*drain) or "drained" in kubectl(*drain)
    kubectl("uncordon", node)


def test_gpuctl_is_a_plugin_that_kubectl_completes(kubectl: Kubectl) -> None:
    assert columns(kubectl("gpu", "status"))[:3] == ["GPU", "TIER", "NODES"]
    assert "Usage: kubectl gpu explain" in kubectl("gpu", "explain", "-h")
    (node,) = kubectl("get", "nodes", "-o", "name").split()
    assert kubectl("gpu", "status", "-o", "name").split() == [node]
    assert kubectl("__complete", "gpu", "top", "").splitlines()[:2] == [node.removeprefix("node/"), ":4"]
    assert kubectl("__complete", "gpu", "st").splitlines()[0].startswith("status\tShow what is allocated")
