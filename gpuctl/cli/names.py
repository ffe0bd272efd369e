"""Lists the names in a collection of the API as fast as it can be done, while somebody waits for a TAB.

Names alone are asked for, over one plain connection: the libraries behind ``KubeClient`` take a tenth of a
second to import. Where they are needed, for a kubeconfig with an exec plugin for example, they are used.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from driver.kube.endpoint import Endpoint, endpoint_of_kubeconfig, endpoint_of_pod
from gpuctl.cli.context import connect_client, find_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

_MOST = "500"
_TIMEOUT_SECONDS = 2.0
_NAMES_ALONE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


def list_names(kubeconfig: Path | None, context: str | None, path: str) -> list[str]:
    """The first 500 names of a collection; none where the server refuses to tell.

    Raises DriverError, OSError or ValueError where it cannot be asked.
    """
    found = find_kubeconfig(kubeconfig, context)
    endpoint = endpoint_of_pod() if found is None else endpoint_of_kubeconfig(found.read())
    if endpoint is None:
        client = connect_client(kubeconfig, context)
        answer: Any = client.get(path, {"limit": _MOST}, timeout_seconds=_TIMEOUT_SECONDS)
    else:
        answer = _asked(endpoint, path)
    return [str(one["metadata"]["name"]) for one in answer.get("items") or ()]


def _asked(endpoint: Endpoint, path: str) -> Any:
    url = urlsplit(endpoint.server)
    headers = {"Accept": _NAMES_ALONE, "User-Agent": "gpuctl"}
    authorization = endpoint.authorization()
    if authorization is not None:
        headers["Authorization"] = authorization
    connection = (
        HTTPConnection(str(url.hostname), url.port, timeout=_TIMEOUT_SECONDS)
        if endpoint.tls is None
        else HTTPSConnection(str(url.hostname), url.port, timeout=_TIMEOUT_SECONDS, context=endpoint.tls)
    )
    try:
        connection.request("GET", f"{url.path}{path}?limit={_MOST}", headers=headers)
        response = connection.getresponse()
        return json.loads(response.read()) if response.status == 200 else {}
    except HTTPException as error:
        raise OSError(f"{endpoint.server} gave no answer of HTTP") from error
    finally:
        connection.close()
