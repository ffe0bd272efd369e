"""The sharing lab and the limits of MPS of deploy/scenarios, with their very files, seen from the node.

What a person sees of them, their READMEs show, which run as they are written.
"""

from pathlib import Path

from tests.clusters import DriverNode
from tests.flow.claims import is_refusal, wait_running
from tests.flow.mig_scene import end
from tests.flow.share_scene import (
    LIMITS,
    MPS_LIMITS,
    clients,
    create,
    daemon_pid,
    defaults,
    first_gpu,
    mps_environment,
    pipes_of,
    share_of,
    shared,
    start_all,
    uuids_seen,
    wait_first_gpu,
    wait_no_daemon,
)
from tests.flow.test_explain import explained
from tests.flow.test_pods_and_claims import wait_refused, wait_told

H100_MIB = 81559 - 454


def waiting(driver: DriverNode, namespace: str, file: Path, device_class: str) -> str:
    """Create the pod of a file, for which there is no share; it has to be told so."""
    (late,) = create(driver.cluster, namespace, file)
    reason = wait_refused(driver.cluster, namespace, late)
    assert is_refusal(reason, "1 cannot allocate all claims")
    assert wait_told(driver.cluster, namespace, "FailedScheduling") == ("Pod", reason)
    code, text = explained(driver.cluster, namespace, "pod", late)
    assert code == 3
    assert f"class {device_class}" in text, text
    return late


def test_four_pods_compute_side_by_side_each_with_a_quarter_of_the_gpu(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    with shared(driver, namespace, (MPS_LIMITS / "nodes/quarters.yaml").read_text()) as devices:
        assert [one["name"] for one in devices] == ["gpu-0000-1b-00-0-mps-4"]
        assert first_gpu(driver) == ("default", 0)
        workers = start_all(cluster, namespace, MPS_LIMITS / "workers.yaml")
        uuid = driver.machine.uuid(min(driver.machine.state.gpus))
        assert [uuids_seen(driver, namespace, pod) for pod in workers] == [[uuid]] * 4
        assert len({share_of(driver, namespace, pod).share_id for pod in workers}) == 4
        assert first_gpu(driver) == ("exclusive-process", 0)
        quarter_mib = H100_MIB // 4
        environment = dict(zip(LIMITS, ("25", f"0={quarter_mib}M"), strict=True))
        assert [mps_environment(driver, namespace, pod) for pod in workers] == [environment] * 4
        with clients(driver, namespace, *workers) as limits:
            assert [one.percentage for one in limits] == [25.0] * 4
            assert [one.pinned_mib for one in limits] == [{"0": quarter_mib}] * 4
        pipes = pipes_of(driver, namespace, workers[0])
        assert defaults(driver, pipes) == (["25.0"], [f"{quarter_mib // 1024}G"])

        late = waiting(driver, namespace, MPS_LIMITS / "fifth.yaml", "shared-mps")
        pid = daemon_pid(pipes)
        end(cluster, namespace, workers[0])
        wait_running(cluster, namespace, late)
        assert daemon_pid(pipes) == pid, "a share that leaves or comes ends nobody's work"
        end(cluster, namespace, *workers[1:], late)
        wait_no_daemon(driver)
        wait_first_gpu(driver, ("default", 0))
