"""Shares of GPUs: what the first one sets and the last one puts back, and what each claim is handed."""

from pathlib import Path

from kubeletplugin.devices.host.driver_files import MPS_PROGRAMS
from tests.kubeletplugin.cdi_schema import validate
from tests.kubeletplugin.fake_node import FakeNode


def test_the_share_id_goes_to_the_journal_the_spec_and_the_answer(node: FakeNode) -> None:
    ref = node.claim_shares("a", node.shared("mps-4"))
    (given,) = node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
    (answer,) = node.prepare(ref)
    name = f"{ref.uid}-{node.shared('mps-4')}-{given['shareID']}"
    assert answer.share_id == given["shareID"]
    assert answer.cdi_device_ids == (f"k8s.gpu.nvidia.com/claim={name}",)
    assert node.entry(ref).devices[0].share_id == given["shareID"]
    spec = node.spec(ref)
    validate(spec)
    assert [device["name"] for device in spec["devices"]] == [name]


def test_a_client_gets_no_program_that_ends_daemons_and_others_keep_theirs(node: FakeNode) -> None:
    """Whoever has a whole GPU may well run MPS on it."""
    client, whole_gpu = node.claim_shares("a", node.shared("mps-4")), node.claim("b", 1)
    for ref in (client, whole_gpu, client):
        node.prepare(ref)
    programs = [
        {Path(one["containerPath"]).name for one in node.spec(ref)["containerEdits"]["mounts"]}
        & {"nvidia-smi", *MPS_PROGRAMS}
        for ref in (client, whole_gpu)
    ]
    assert programs == [{"nvidia-smi"}, {"nvidia-smi", *MPS_PROGRAMS}]
