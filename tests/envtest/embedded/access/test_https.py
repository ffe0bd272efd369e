"""The embedded API server speaks HTTPS."""

import base64
import json
from pathlib import Path

from tests.clusters import ApiClient, EmbeddedCluster
from tests.openssl import openssl


def test_a_cluster_makes_a_certificate_of_its_own(tmp_path: Path) -> None:
    openssl("version")
    with EmbeddedCluster(https=True) as cluster:
        assert cluster.server.startswith("https://127.0.0.1:")
        assert cluster.admin.stat().st_mode & 0o077 == 0
        config = json.loads(cluster.admin.read_text())
        trusted = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        (tmp_path / "ca.crt").write_bytes(trusted)
        api = ApiClient(cluster.server, tmp_path / "ca.crt", config["users"][0]["user"]["token"])
        assert api.get("/api/v1/nodes/node-0")["metadata"]["name"] == "node-0"
