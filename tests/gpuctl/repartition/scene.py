"""A node with GPUs in an API server without a kubelet, for tests of ``gpuctl repartition``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from envtest.embedded.server import EmbeddedApiServer
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.__main__ import commands
from gpuctl.plan.planned import plan_node
from gpuctl.repartition.node_gpus import NodeGpu, node_gpus
from tests.gpuctl.repartition.node_admin import run_commands

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class Scene:
    """``node-a`` with a fake machine, whose slices are published when ``publish`` is called."""

    def __init__(self, server: EmbeddedApiServer, folder: Path, machine: str = "hgx-h100") -> None:
        self.server = server
        self.kubeconfig = server.write_kubeconfig(folder / "config")
        self._named = f"{machine}@{folder / 'state.json'}"
        self.machine = FakeMachine.open(self._named)
        self.config: Path | None = None
        self._folder = folder
        server.create("/api/v1/nodes", {"metadata": {"name": "node-a"}})
        labels = {"resource.kubernetes.io/admin-access": "true"}
        server.replace("/api/v1/namespaces/default", {"metadata": {"name": "default", "labels": labels}})

    def configure(self, rules: str) -> None:
        """Give the node a node configuration."""
        self.config = self._folder / "node.yaml"
        self.config.write_text(f"version: v1\nrules:\n{rules}")

    def gpus(self) -> list[NodeGpu]:
        """The GPUs as the machine is now."""
        return list(node_gpus(plan_node(self._named, "node-a", self.config).slices).values())

    def publish(self) -> None:
        """Publish what the machine offers now, in place of what was there."""
        self.server.delete(SLICES)
        for item in plan_node(self._named, "node-a", self.config).slices:
            self.server.create(SLICES, item)

    def cut(self, text: str) -> int:
        """Let an admin run commands on the node."""
        return run_commands(self.machine, text)

    def pod(self, name: str, owner: str = "") -> dict[str, Any]:
        """A pod on the node; ``owner`` is ``kind/name`` of its controller, which is made too."""
        metadata: dict[str, Any] = {"name": name}
        if owner:
            metadata["ownerReferences"] = [self._owner(*owner.split("/"))]
        body = {
            "metadata": metadata,
            "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "x"}]},
        }
        return self.server.create(PODS, body)

    def _owner(self, kind: str, name: str) -> dict[str, Any]:
        """The reference to a controller; without the controller itself its pods would be collected."""
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        }
        body = {
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }
        made = self.server.create(f"/apis/apps/v1/namespaces/default/{kind.lower()}s", body)
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": True}
        return {**reference, "uid": made["metadata"]["uid"]}

    def claim(self, name: str, device: str, *pods: dict[str, Any], **result: Any) -> None:
        """An allocated claim that pods use."""
        exactly = {"deviceClassName": "gpu.nvidia.com"}
        body = {
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        stored = self.server.create(CLAIMS, body)
        pool = {"driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": device}
        users = [
            {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in pods
        ]
        status = {
            "allocation": {"devices": {"results": [{"request": "gpu", **pool, **result}]}},
            "reservedFor": users,
        }
        self.server.replace(f"{CLAIMS}/{name}/status", {**stored, "status": status})

    def end_pods(self) -> None:
        """Do what a kubelet and the claim controller do with pods that are being deleted."""
        for pod in self.server.objects("pods"):
            if "deletionTimestamp" in pod["metadata"]:
                self.server.delete(f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        gone = {pod["metadata"]["uid"] for pod in self.server.objects("pods")}
        for claim in self.server.objects("resourceclaims", "resource.k8s.io"):
            if gone.isdisjoint(user["uid"] for user in claim["status"].get("reservedFor") or ()):
                stored = {**claim, "status": {}}
                self.server.replace(f"{CLAIMS}/{claim['metadata']['name']}/status", stored)

    @property
    def node(self) -> dict[str, Any]:
        """The node's spec as it is stored."""
        (stored,) = self.server.objects("nodes")
        spec: dict[str, Any] = stored.get("spec") or {}
        return spec

    def run(self, *arguments: str) -> Any:
        """Run the command on the node."""
        where = ("node-a", "--kubeconfig", str(self.kubeconfig))
        return CliRunner().invoke(commands, ["repartition", *where, *arguments], catch_exceptions=False)

    def told(self, *arguments: str) -> dict[str, Any]:
        """What the command tells scripts."""
        found: dict[str, Any] = json.loads(self.run(*arguments, "-o", "json").stdout)
        return found
