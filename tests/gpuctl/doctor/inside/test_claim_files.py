"""What the plugin keeps of claims is read as it lies on the node; a damaged file does not end the doctor."""

from pathlib import Path

import pytest

from gpuctl.doctor.inside.claim_files import read_sharing, read_specs
from tests.clusters import Unread
from tests.gpuctl.doctor.nodes import UID
from tests.plugin import cdi_spec_file_name

DAMAGED = ["", "[]", "{}", "[" * 100_000, '{"devices": ' + "[" * 5000 + "]" * 5000 + "}"]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:20])
def test_a_file_that_is_damaged_is_told_with_its_name(tmp_path: Path, content: str) -> None:
    (tmp_path / cdi_spec_file_name(UID)).write_text(content)
    (tmp_path / "gpu-0000-17-00-0.json").write_text(content)

    specs = read_specs(tmp_path, lambda _: True)
    record = next(one for one in read_sharing(tmp_path) if one.group == "gpu-0000-17-00-0")

    assert not isinstance(specs, Unread)
    assert specs[0].uid == UID
    assert specs[0].wrong.startswith("it is not a CDI spec")
    assert record.wrong.startswith("it is not a record of sharing")
