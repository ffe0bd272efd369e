"""Puts the objects of a site into an API server."""

from pathlib import Path

from click.testing import CliRunner, Result

from tests.clusters import EmbeddedApiServer, Object, commands
from tests.gpuctl.explain.site import Site

DRA = "/apis/resource.k8s.io/v1"
TEAM = "/api/v1/namespaces/team/pods"


class Served:
    """The objects of a site in an API server."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.kubeconfig = str(server.write_kubeconfig(folder / "config"))

    def load(self, site: Site, *waiting: Object) -> None:
        """Create all objects; the embedded server gives pods UIDs of its own, which claims then name."""
        server = self.server
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        for value in {pod["spec"]["priority"] for pod in (*site.pods, *waiting)}:
            body = {"metadata": {"name": f"of-{value}"}, "value": value}
            server.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for node in site.nodes:
            server.create("/api/v1/nodes", node)
        for one in site.classes:
            server.create(f"{DRA}/deviceclasses", one)
        for one in site.slices:
            server.create(f"{DRA}/resourceslices", one)
        uids = {}
        for pod in (*site.pods, *waiting):
            metadata = {key: value for key, value in pod["metadata"].items() if key != "uid"}
            containers = [{**one, "image": "x"} for one in pod["spec"]["containers"]]
            priority = f"of-{pod['spec']['priority']}"
            spec = {**pod["spec"], "containers": containers, "priorityClassName": priority}
            made = server.create(TEAM, {"metadata": metadata, "spec": spec})
            name = metadata["name"]
            server.replace(f"{TEAM}/{name}/status", {**made, "status": pod["status"]})
            uids[name] = made["metadata"]["uid"]
        for claim in site.claims:
            status = claim.get("status") or {}
            users = [{**one, "uid": uids[one["name"]]} for one in status.get("reservedFor") or ()]
            owners = [{**one, "uid": uids[one["name"]]} for one in claim["metadata"]["ownerReferences"]]
            metadata = {"name": claim["metadata"]["name"], "ownerReferences": owners}
            path = f"{DRA}/namespaces/team/resourceclaims"
            made = server.create(path, {"metadata": metadata, "spec": claim["spec"]})
            if status:
                status = {**status, "reservedFor": users}
                server.replace(f"{path}/{metadata['name']}/status", {**made, "status": status})

        for budget in site.budgets:
            path = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"
            metadata = {"name": budget["metadata"]["name"]}
            made = server.create(path, {"metadata": metadata, "spec": budget["spec"]})
            server.replace(f"{path}/{metadata['name']}/status", {**made, "status": budget["status"]})

    def run(self, *arguments: str) -> Result:
        """Run the command."""
        command = ["explain", *arguments, "--kubeconfig", self.kubeconfig]
        return CliRunner().invoke(commands, command)
