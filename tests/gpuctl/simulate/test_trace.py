"""A trace says when pods come and how long they run; a mistake in it is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.errors import ConfigError
from gpuctl.simulate.trace import Arrival, load_trace
from tests.gpuctl.simulate.workloads import group

GROUPS = (group("train", 0, lasts_seconds=60.0), group("infer", 0))


def load(folder: Path, text: str | bytes) -> list[Arrival]:
    path = folder / "day.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_trace(path, GROUPS)


def test_rows_in_any_order_become_arrivals_in_time(tmp_path: Path) -> None:
    found = load(tmp_path, "arrival,pod,duration,count\n90.5,infer,10,3\n\n0,train,,\n 90.5 , train , 0 ,\n")

    assert found == [Arrival(0, 0, 1, 60), Arrival(90.5, 1, 3, 10), Arrival(90.5, 0, 1, 0)]


def test_columns_may_be_left_out_and_have_another_order(tmp_path: Path) -> None:
    assert load(tmp_path, "\ufeffPod,Arrival\r\ninfer,5\r\n") == [Arrival(5, 1, 1, None)]


def test_the_first_moment_is_second_0(tmp_path: Path) -> None:
    rows = "2026-03-01T09:00:00+01:00,train\n2026-03-01T08:30:00Z,train\n2026-03-01t07:59:59.5z,infer\n"

    found = load(tmp_path, f"arrival,pod\n{rows}")

    assert [one.seconds for one in found] == [0, 0.5, 1800.5]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "there are no pods: write a header with arrival,pod,duration,count"),
        ("arrival,pod\n", 1, "there are no pods"),
        ("0,train\n", 1, "the header is 0,train, and not of arrival,pod,duration,count"),
        ("arrival,duration\n1,2\n", 1, "the header is arrival,duration"),
        ("arrival,pod,pod\n", 1, "the header is"),
        ("arrival,pod,gpus\n", 1, "the header is"),
        ("arrival,pod\n1,train\n2\n", 3, "there are 1 values for 2 columns"),
        ("arrival,pod\n1,train\n2,trian\n", 3, "the workload has no pods named trian: train, infer"),
        ("arrival,pod\n1,\n", 2, "the workload has no pods named nothing"),
        ("arrival,pod\n-1,train\n", 2, "the arrival -1 is not a number of seconds"),
        ("arrival,pod\n,train\n", 2, "the arrival is empty and is not a number of seconds"),
        ("arrival,pod\nnan,train\n", 2, "the arrival nan is not"),
        ("arrival,pod\n1e11,train\n", 2, "the arrival 1e11 is not"),
        ("arrival,pod,duration\n1,train,-5\n", 2, "the duration -5 is not"),
        ("arrival,pod,duration\n1,train,inf\n", 2, "the duration inf is not"),
        ("arrival,pod,duration\n1,train,1h\n", 2, "the duration 1h is not"),
        ("arrival,pod,count\n1,train,0\n", 2, "the count 0 is not a number of pods from 1"),
        ("arrival,pod,count\n1,train,1.5\n", 2, "the count 1.5 is not"),
        ("arrival,pod,count\n1,train,999999\n1,train,2\n", 3, "these are more than 1,000,000 pods"),
        ("arrival,pod\n2026-03-01T08:00,train\n", 2, "has no time zone"),
        ("arrival,pod\n2026-13-01T08:00Z,train\n", 2, "is not a moment such as"),
        ("arrival,pod\n1,train\n2026-03-01T08:00Z,train\n", 3, "mixes seconds and moments"),
        ('arrival,pod\n1,"train\n', 2, "unexpected end of data"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)

    assert str(caught.value).startswith(f"the trace {tmp_path / 'day.csv'}, line {line}: ")
    assert reason in str(caught.value)


def test_what_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"day\.csv is not UTF-8"):
        load(tmp_path, b"arrival,pod\n1,tr\xffin\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_trace(tmp_path, GROUPS)
