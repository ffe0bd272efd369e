"""The report of a verification is masked for others."""

import json

from gpuctl.cli.output import document
from gpuctl.doctor.check import Result
from gpuctl.verify.report import Model, VerifyReport, masked, masking
from tests.gpuctl.documents import read_document

UUID = "GPU-8a3c1b2d-0000-1111-2222-333344445555"
OTHER = "MIG-8a3c1b2d-0000-1111-2222-333344445556"
REPORT = VerifyReport(
    version="0.1.0",
    driver_version="580.95.05",
    cuda_version="13.0",
    kernel="6.1.0",
    processor="x86_64",
    models=(Model("NVIDIA H100 80GB HBM3", 8, "Hopper", "9.0", 85_520_809_984, mig=True),),
    may_change=True,
    fake=False,
    seconds=61.5,
    results=(
        Result("nvml", "nvml-contract", "ok", f"{UUID} answers"),
        Result("claims", "whole", "ok", "one GPU"),
        Result("claims", "mps", "fail", f"{OTHER} got more than {UUID}", "look", (f"on host-a: {UUID}",)),
    ),
)


def test_a_report_for_others_has_no_uuid_and_no_host_name() -> None:
    data = masked(document("VerifyReport", REPORT), masking("host-a"))

    assert data["results"][2]["message"] == "MIG-2 got more than GPU-1"
    assert data["results"][2]["details"] == ["on HOST: GPU-1"]
    assert "8a3c1b2d" not in str(data)
    read_document(json.dumps(data), "VerifyReport")
