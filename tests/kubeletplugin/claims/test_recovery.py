"""A CDI spec whose journal entry is lost says which GPUs its claim has."""

import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletplugin.claims.cdi.spec import file_edits
from kubeletplugin.claims.journal.entry import Identity
from kubeletplugin.claims.recovery import recover
from kubeletplugin.kubelet.wire.names import cdi_device_name
from tests.examples import examples
from tests.gpus import DRIVER_NAME
from tests.plugin import (
    CdiDevice,
    CdiStore,
    DeviceNode,
    DriverFiles,
    Edits,
    Entry,
    HeldDevice,
    HostPaths,
    Journal,
    KeyedLocks,
    Recovered,
    build_spec,
    claim_key,
)

UID = "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11"
IDENTITY = Identity(DRIVER_NAME, "pool", "boot")
SHARE = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
PCI = "0000:8a:00.0"
FORMS = ("", "-ts-4", "-mps-4-mem", "-mps-mem", "-ts-frac-10")
DEVICES = tuple(
    f"gpu-0000-8a-00-0{part}{form}"
    for part in ("", "-mig-1g-10gb-6", "-static-3g-40gb-4", "-static-1c-3g-40gb-4-2")
    for form in FORMS
)


def lost(uid: str, *names: str) -> tuple[HeldDevice, ...]:
    """The devices of a claim that has only a spec with devices of these names."""
    with TemporaryDirectory() as folder:
        journal, store = Journal(Path(folder) / "journal", lambda: True), CdiStore(Path(folder))
        write(store, uid, *names)
        recover(journal, KeyedLocks(Path(folder) / "locks"), store, IDENTITY)
        entry = journal.get(uid)
        return entry.devices if entry else ()


def write(store: CdiStore, uid: str, *names: str) -> None:
    node = DeviceNode("/dev/nvidia0", "/dev/nvidia0", 195, 0)
    host = HostPaths(Path("/"), Path("/"))
    files = file_edits(DriverFiles("580", (), (), (), (), (), None), host)
    store.write(uid, build_spec([CdiDevice(name, Edits((node,))) for name in names], [node], files, host))


@settings(max_examples=examples(30), deadline=None)
@given(st.uuids(), st.sampled_from(DEVICES), st.none() | st.uuids())
def test_the_device_and_the_share_are_read_from_the_name(
    claim: uuid.UUID, device: str, share: uuid.UUID | None
) -> None:
    share_id = None if share is None else str(share)
    name = cdi_device_name(str(claim), device, share_id)
    held = HeldDevice("", "pool", device, PCI, "", name, share_id, kind="lost")
    assert lost(str(claim), name) == (held,)


@pytest.mark.parametrize("rest", ["", "-", f"-{SHARE}", "-colour", f"-gpu-0-{SHARE}"])
def test_a_name_that_is_none_of_ours_is_no_device(rest: str) -> None:
    assert lost(UID, UID + rest) == ()


def test_a_lost_entry_is_noted_once_and_a_spec_that_names_no_device_is_removed(tmp_path: Path) -> None:
    journal, store = Journal(tmp_path / "journal", lambda: True), CdiStore(tmp_path)
    write(store, UID, cdi_device_name(UID, "gpu-0000-8a-00-0-mps-4", SHARE), f"{UID}-colour")
    write(store, "u-2", "u-2-colour")

    locks = KeyedLocks(tmp_path / "locks")
    assert recover(journal, locks, store, IDENTITY) == Recovered((UID,), ("u-2",))
    entry = journal.get(UID)
    assert entry is not None
    assert (entry.state, entry.shares) == ("lost", False)
    assert [(held.device, held.share_id) for held in entry.devices] == [("gpu-0000-8a-00-0-mps-4", SHARE)]
    assert recover(journal, locks, store, IDENTITY) == Recovered()


class ListedEarlier(CdiStore):
    """A folder that another instance works in while it is listed: ``meanwhile`` runs after the listing."""

    def __init__(self, folder: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(folder)
        self._meanwhile = meanwhile

    def uids(self) -> tuple[str, ...]:
        found = super().uids()
        self._meanwhile()
        return found


def test_what_another_instance_has_prepared_meanwhile_keeps_its_entry_and_its_spec(tmp_path: Path) -> None:
    theirs, locks = Journal(tmp_path / "journal", lambda: True), KeyedLocks(tmp_path / "locks")
    name = cdi_device_name(UID, "gpu-0000-8a-00-0")
    held = HeldDevice("gpu", "pool", "gpu-0000-8a-00-0", PCI, "GPU-1", name, kind="whole")
    fresh = Entry(UID, "team", "train", "prepared", 1, (held,))
    for spec in ((name,), ()):
        store = ListedEarlier(tmp_path, lambda: theirs.put(fresh))
        write(store, UID, *spec)
        ours = Journal(tmp_path / "journal", lambda: True)

        assert recover(ours, locks, store, IDENTITY) == Recovered()
        assert ours.get(UID) == fresh
        assert store.read(UID) is not None
        theirs.forget(UID)


def test_a_claim_that_another_instance_is_at_work_on_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletplugin.claims.recovery._LOCK_SECONDS", 0.01)
    journal, store = Journal(tmp_path / "journal", lambda: True), CdiStore(tmp_path)
    write(store, UID, cdi_device_name(UID, "gpu-0000-8a-00-0"))
    write(store, "u-2", cdi_device_name("u-2", "gpu-0000-8b-00-0"))

    with KeyedLocks(tmp_path / "locks").holding([claim_key(UID)], 1):
        recovered = recover(journal, KeyedLocks(tmp_path / "locks"), store, IDENTITY)

    assert recovered.lost == ("u-2",)
    ((uid, reason),) = recovered.failed
    assert uid == UID
    assert "another instance of the plugin still works on" in reason
    assert store.read(UID) is not None
