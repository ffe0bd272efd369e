"""What a container reads of its devices, on either kind of cluster."""

import json
from pathlib import Path

from tests.clusters import Cluster, Object
from tests.gpus import DRIVER_NAME

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
"""Where containers find device metadata: ContainerDir of k8s.io/dynamic-resource-allocation/api/metadata."""

_BELOW_RUN = FOLDER.removeprefix("/var")
"""The same as a real kernel shows it in images whose /var/run is a link."""


def metadata_files(
    cluster: Cluster, namespace: str, pod: str, container: str | None = None
) -> dict[str, str]:
    """The metadata files that a container has: what they say, by their paths below the folder."""
    facts = cluster.container(pod, namespace, container)
    look = getattr(cluster, "exec", None)
    found = {}
    for path, mounted in facts.mounts.items():
        below = next((path.removeprefix(one) for one in (FOLDER, _BELOW_RUN) if path.startswith(one)), None)
        if below is None:
            continue
        assert "ro" in mounted.options, "a container changes nothing of what the driver says"
        text = (
            Path(mounted.source).read_text()
            if look is None
            else look(pod, ["cat", path], namespace, container)
        )
        found[below.lstrip("/")] = text
    return found


def devices_told(
    cluster: Cluster, namespace: str, pod: str, claim: str, request: str, container: str | None = None
) -> list[Object]:
    """The devices of a request as a container reads them; ``claim`` is a path below the folder."""
    files = metadata_files(cluster, namespace, pod, container)
    newest = json.loads(files[f"{claim}/{request}/{DRIVER_NAME}-metadata.json"].splitlines()[0])
    (told,) = newest["requests"]
    assert told["name"] == request
    devices: list[Object] = told["devices"]
    return devices
