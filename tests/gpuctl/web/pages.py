"""A page over an embedded API server: served in a thread, asked over HTTP as a browser asks."""

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from gpuctl.web.server import WebServer, address_of, bound
from tests.clusters import ApiClient, EmbeddedApiServer, KubeClient, Object, connect_client, plan_node
from tests.eventually import WAIT_SECONDS, eventually
from tests.running import running

DRA = "/apis/resource.k8s.io/v1"
POOL = "node-a/gpu.nvidia.com"
EXAMPLES = Path(__file__).resolve().parents[3] / "deploy/examples/node-config"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


@dataclass(frozen=True, slots=True)
class Page:
    """A page that is being served, and the cluster behind it."""

    address: str
    api: ApiClient
    api_server: EmbeddedApiServer
    server: WebServer

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Ask for a path; ``Host`` is what a browser sends unless it is given."""
        place = urlsplit(self.address)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=WAIT_SECONDS)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def wait_words(self, path: str, *wanted: str) -> str:
        """The words of a page once all of these are among them."""
        return eventually(
            f"{path} becomes so",
            lambda: words(self.get(path).text),
            lambda text: all(one in text for one in wanted),
        )


@contextmanager
def page_of(api_server: EmbeddedApiServer, kubeconfig: Path, names: tuple[str, ...] = ()) -> Iterator[Page]:
    """Serve the page until the block ends."""
    client: KubeClient = connect_client(api_server.write_kubeconfig(kubeconfig))
    server = WebServer(client, "test", names)
    made = bound("127.0.0.1:0")
    api = ApiClient(api_server.url, None, api_server.gate.admin_bearer)
    with running(partial(server.run, made), server.stop):
        yield Page(address_of(made), api, api_server, server)


def publish(api_server: EmbeddedApiServer, node: str = "node-a", config: str = "") -> list[Object]:
    """Have a node publish what a machine of eight H100 would; the slices as stored."""
    api_server.create("/api/v1/nodes", {"metadata": {"name": node}})
    planned = json.loads(_planned(config).replace("node-a", node))
    return [api_server.create(f"{DRA}/resourceslices", one) for one in planned]


@cache
def _planned(config: str) -> str:
    """The slices of the node ``node-a`` as JSON."""
    path = EXAMPLES / f"{config}.yaml" if config else None
    return json.dumps(plan_node("hgx-h100", "node-a", path).slices)


def add_class(api_server: EmbeddedApiServer, name: str = "gpu.nvidia.com", kind: str = "gpu") -> None:
    """A class of this driver's devices of a type."""
    expression = (
        "device.driver == 'gpu.nvidia.com' && 'type' in device.attributes['gpu.nvidia.com'] && "
        f"device.attributes['gpu.nvidia.com'].type == '{kind}'"
    )
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    api_server.create(f"{DRA}/deviceclasses", {"metadata": {"name": name}, "spec": spec})


def add_claim(page: Page, name: str, device_class: str = "gpu.nvidia.com") -> None:
    """A claim without devices, in the namespace default."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    page.api.create({**claim, "spec": spec})


def give(page: Page, claim: str, device: str | None, *, users: tuple[str, ...] = ()) -> None:
    """Have a claim's status say what it was given, or with None that it has nothing."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": POOL, "device": device}
    status: Object = {
        "allocation": {"devices": {"results": [result]}} if device else None,
        "reservedFor": [{"resource": "pods", "name": one, "uid": f"uid-{one}"} for one in users],
    }
    page.api.patch(f"{DRA}/namespaces/default/resourceclaims/{claim}/status", {"status": status})


def waiting_pod(name: str, claim: str, **spec: str) -> Object:
    """A pod that asks for the devices of a claim."""
    asks = [{"name": "gpu", "resourceClaimName": claim}]
    made = {"containers": [{"name": "main", "image": "train"}], "resourceClaims": asks, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": made}


_BLOCKS = frozenset({"h1", "h2", "h3", "p", "tr", "dt", "form", "ul", "summary"})


class _Words(HTMLParser):
    """What a person reads or hears of a page: text, and the names of pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += ["\n"] if tag in _BLOCKS else [" | "] if tag in ("td", "th", "dd", "li") else []
        self.found += [value for name, value in attrs if name == "aria-label" and value]

    def handle_data(self, data: str) -> None:
        self.found.append(data.replace("\n", " "))


def words(html: str) -> str:
    """The words of a page, with single spaces between them."""
    return " ".join(lines(html).replace("|", " ").split())


def lines(html: str) -> str:
    """The words of a page, a line for each paragraph and each row; times and ages are left out."""
    parser = _Words()
    parser.feed(html)
    told = re.sub(r"\d{4}-\d\d-\d\dT[0-9:]+Z", "TIME", "".join(parser.found))
    return "\n".join(filter(None, (" ".join(line.split()) for line in told.split("\n"))))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """The elements of a page with their attributes, as a browser would see them."""
    parser = _Tags()
    parser.feed(html)
    return parser.found
