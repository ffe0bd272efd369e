"""Karpenter's own allocator says of a planned node what Kubernetes' allocator says of the real one."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product

from tests.clusters import AllocationFailed, Allocator, Object, defaulted_claim_spec, dynamic_resources, go_programs
from tests.deviceclasses.published_nodes import plan
from tests.deviceclasses.sample_claims import NODE_OBJECT, claim_of
from tests.deviceclasses.shipped_classes import ALL, ROOT, objects

EXAMPLES = ROOT / "deploy/examples"
MACHINES = (
    *("hgx-h100", "a30-quad", "l4-quad", "gb200-tray", "dgx-a100", "hgx-b200", "rtx-pro-6000-octo"),
)
CONFIGURATIONS = {
    "": None,
    **{file.stem: file.read_text() for file in sorted((EXAMPLES / "node-config").glob("*.yaml"))},
}
PODS = 3


@cache
def claims() -> dict[str, Object]:
    """The claims of the samples and one for each class, by a word for them."""
    found = {}
    for file in sorted(EXAMPLES.glob("*/*.yaml")):
        if any(one.get("kind") in ("ResourceClaim", "ResourceClaimTemplate") for one in objects(file)):
            found[f"{file.parent.name}/{file.stem}"] = claim_of(file)
    for name in ALL:
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": name}}]}}
        found[name] = {"metadata": {"name": name, "namespace": "default"}, "spec": defaulted_claim_spec(spec)}
    return found


@cache
def kubernetes(machine: str, configuration: str) -> dict[str, list[list[str]] | str]:
    planned = plan(machine, CONFIGURATIONS[configuration])
    allocator = Allocator(planned.slices, ALL.values(), ())
    found: dict[str, list[list[str]] | str] = {}
    for word, claim in claims().items():
        allocator = allocator.with_claims(())
        pods: list[list[str]] = []
        found[word] = pods
        for index in range(PODS):
            one = {**claim, "metadata": {**claim["metadata"], "name": f"{claim['metadata']['name']}-{index}", "uid": str(index)}}
            try:
                allocations = allocator.allocate(NODE_OBJECT, [one])
            except AllocationFailed as error:
                if not pods:
                    found[word] = str(error)
                break
            if allocations is None:
                break
            allocator.assume({**one, "status": {"allocation": allocations[0]}})
            pods.append([r["device"] for r in allocations[0]["devices"]["results"]])
    return found


def karpenter() -> Iterator[tuple[str, str, dict[str, Object]]]:
    cases = list(product(MACHINES, CONFIGURATIONS))
    lines = []
    for machine, configuration in cases:
        planned = plan(machine, CONFIGURATIONS[configuration])
        lines.append(json.dumps({
            "resources": dynamic_resources(planned.slices),
            "classes": list(ALL.values()),
            "claims": list(claims().values()),
            "pods": PODS,
        }))
    import time
    start = time.time()
    done = subprocess.run(["/tmp/karp/allocates"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    print("karpenter seconds", time.time() - start, len(done.stdout))
    assert done.returncode == 0, done.stderr
    for (machine, configuration), line in zip(cases, done.stdout.splitlines(), strict=True):
        yield machine, configuration, dict(zip(claims(), json.loads(line), strict=True))


def explore() -> None:
    from collections import Counter
    total, equal, same = 0, 0, 0
    diffs = []
    for machine, configuration, said in karpenter():
        ours = kubernetes(machine, configuration)
        for word, answer in said.items():
            total += 1
            theirs = [[d["device"] for d in pod] for pod in answer["pods"]]
            mine = ours[word]
            n = 0 if isinstance(mine, str) else len(mine)
            if n == len(theirs):
                equal += 1
                same += theirs == ([] if isinstance(mine, str) else mine)
                if theirs != ([] if isinstance(mine, str) else mine): diffs.append((machine, configuration, word, "OTHER DEVICES", mine, theirs))
            else:
                diffs.append((machine, configuration, word, n, len(theirs), mine if isinstance(mine, str) else "", answer.get("refused")))
    print(total, equal, same)
    for d in diffs: print(*[str(x)[:260] for x in d], sep=" | ")

if __name__ == "__main__":
    explore()
