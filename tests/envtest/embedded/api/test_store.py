"""The store remembers what was, and forgets no more than it says."""

from envtest.embedded.api.faults import ALWAYS
from envtest.embedded.api.store import Store
from tests.clusters import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, SLICES, ask, names, pod, resource_slice

THINGS = ("", "things")


def put(store: Store, name: str, **fields: object) -> int:
    item = store.put(THINGS, ("", name), {"metadata": {"name": name, "uid": name}, **fields})
    return int(item["metadata"]["resourceVersion"])


def test_an_earlier_version_shows_what_was_there_then() -> None:
    store = Store()
    put(store, "changed", value=1)
    put(store, "gone")
    then = store.resource_version
    put(store, "changed", value=2)
    put(store, "new")
    store.remove(THINGS, ("", "gone"))

    past = {key[1]: item.get("value") for key, item in store.at_version(THINGS, then)}

    assert past == {"changed": 1, "gone": None}


def test_a_server_that_is_behind_answers_with_what_was(server: EmbeddedApiServer) -> None:
    server.create(PODS, pod("old"))
    then = server.store.resource_version
    server.create(PODS, pod("new"))
    fault = server.fail("*", "pods", kind="stale", resource_version=then, times=ALWAYS)

    listed = ask(server, "GET", PODS).body
    missing = ask(server, "GET", f"{PODS}/new").code
    fault.release()

    assert names(listed) == ["old"]
    assert listed["metadata"]["resourceVersion"] == str(then)
    assert (missing, ask(server, "GET", f"{PODS}/new").code) == (404, 200)


def test_a_disabled_gate_drops_its_fields_and_an_enabled_one_fills_in_the_time(
    server: EmbeddedApiServer,
) -> None:
    device = {"name": "d", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    [kept] = server.create(SLICES, resource_slice("s", devices=[device]))["spec"]["devices"]
    server.verbs.disabled_gates = frozenset({"DRADeviceTaints"})
    [dropped] = server.create(SLICES, resource_slice("t", devices=[device]))["spec"]["devices"]

    assert kept["taints"][0]["timeAdded"].endswith("Z")
    assert "taints" not in dropped


def test_the_objects_outlive_a_restart_in_the_version_that_kubernetes_serves_by_default(
    server: EmbeddedApiServer,
) -> None:
    server.create(SLICES, resource_slice("s"))

    server.restart()

    assert names(ask(server, "GET", SLICES).body) == ["s"]
    assert ask(server, "GET", SLICES.replace("/v1/", "/v1beta2/")).code == 404
