"""The embedded API server answers what kubectl asks beside objects, and refuses in Kubernetes' words."""

from tests.clusters import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import ask


def test_who_looks_for_a_kind_that_nobody_describes_finds_that_there_is_none(
    server: EmbeddedApiServer,
) -> None:
    kind = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    older = ask(server, "GET", "/openapi/v2", accept=kind)

    assert (older.code, older.headers["content-length"]) == (200, "0")
