"""Mints tokens of service accounts that are bound to a node, as a driver's pod on that node has them.

The API server writes the name of a pod's node into a token that is bound to the pod (KEP-4193). The
driver's rights rest on it: the policy for ResourceSlices, and the verbs ``associated-node:*`` for
the status of claims.
"""

from __future__ import annotations

from typing import Any

from envtest.client.api import ApiClient
from envtest.real.render import IMAGE

LIFETIME_SECONDS = 24 * 3600


def holder_pod(service_account: str, namespace: str, node: str) -> dict[str, Any]:
    """A pod that stays on a node, for tokens to be bound to; they end with it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{service_account}-{node}", "namespace": namespace},
        "spec": {
            "nodeName": node,
            "serviceAccountName": service_account,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "holder", "image": IMAGE, "imagePullPolicy": "Never"}],
        },
    }


def mint_token(api: ApiClient, service_account: str, namespace: str, node: str) -> str:
    """A token of an existing service account, bound to a pod on a node; makes the pod if need be.

    ``api`` must be an administrator's. The token is good for a day at most.
    """
    pod = api.apply(holder_pod(service_account, namespace, node))[0]
    bound_to = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
    }
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound_to, "expirationSeconds": LIFETIME_SECONDS},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
    return str(api.request("POST", path, request)["status"]["token"])
