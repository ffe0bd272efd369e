"""The schema of the journal's entries stays as one file froze it, until the first release is tagged.

An instance of another version reads these entries during an update, so a field that changes its name or its
meaning loses claims. A new field is fine: ``python -m tests.kubeletplugin.claims.journal.test_schema`` writes
the
file again, and the file's diff shows what was added.
"""

from dataclasses import fields, replace
from pathlib import Path

from kubeletplugin.claims.journal.entry import decode, encode
from tests.plugin import Entry, HeldDevice, ShareRecord

FROZEN = Path(__file__).with_name("frozen_entry.json")

_WHOLE = HeldDevice(
    "gpu",
    "node-a/gpu.nvidia.com",
    "gpu-0000-8a-00-0",
    "0000:8a:00.0",
    "GPU-8a",
    "claim-gpu",
    admin_access=True,
    kind="whole",
    more_gpus=("0000:8b:00.0",),
    published_as="gpu-0",
    device_class="large",
)
_PARTITION = replace(
    _WHOLE,
    device="gpu-0000-8a-00-0-mig-1g-10gb-6",
    kind="partition",
    record={"profile": "1g.10gb", "start": 6},
    admin_access=False,
)
_SHARE = replace(
    _WHOLE,
    device="gpu-0000-8a-00-0-mps-frac-mem",
    share_id="3f6c",
    share=ShareRecord("gpu-0000-8a-00-0", "MPS", 1, 1 << 34, "Short", 25, 16384, multi_user=True),
    memory_limit_bytes=1 << 34,
)
ENTRY = Entry(
    "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11",
    "team",
    "train",
    "prepared",
    1234,
    (_WHOLE, _PARTITION, _SHARE),
    spec_sha256="5bec",
    driver_generation="1-2",
    pod_claim_name="gpu",
)


def test_the_example_gives_every_field_a_value_of_its_own() -> None:
    for examples in ((ENTRY,), (_WHOLE, _PARTITION, _SHARE), (_SHARE.share,)):
        for one in fields(examples[0]):  # type: ignore[arg-type]  # no record is None here
            assert any(getattr(example, one.name) != one.default for example in examples), one.name


def test_an_entry_is_written_as_it_was_frozen() -> None:
    assert encode(ENTRY) == FROZEN.read_bytes()


def test_a_frozen_entry_is_read() -> None:
    assert decode(FROZEN.read_bytes()) == ENTRY


if __name__ == "__main__":
    FROZEN.write_bytes(encode(ENTRY))
