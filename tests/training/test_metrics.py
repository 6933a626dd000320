"""Laws of the numbers that a run writes: each step once, readable by anybody."""

import json
import math
import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from transformer.training import MetricsWriter, RunFolder


def write(folder: RunFolder, start: int, values: dict[int, float]) -> None:
    """A part of a run that goes on after `start`."""
    writer = MetricsWriter(folder, start)
    for step, loss in values.items():
        writer.write(step, {"train/loss": loss})
    writer.close()


def lines(folder: RunFolder) -> list[dict]:
    """What `metrics.jsonl` holds, read by a strict reader."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    text = folder.metrics_path.read_text(encoding="utf-8")
    assert text.endswith("\n") or not text
    return [json.loads(one, parse_constant=refuse) for one in text.splitlines()]


def events(path: Path) -> list[Event]:
    """The records of the event files: length, checksum, message, checksum."""
    found = []
    for file in sorted(path.glob("events.out.tfevents.*")):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            found.append(Event.FromString(content[12 : 12 + length]))
            content = content[12 + length + 4 :]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """An empty folder."""
    return RunFolder(tmp_path)


def test_lines_and_events_hold_the_same_numbers(folder: RunFolder) -> None:
    """What TensorBoard shows is what the file says."""
    write(folder, 0, {1: 3.5, 2: 3.25})
    assert lines(folder) == [
        {"step": 1, "train/loss": 3.5},
        {"step": 2, "train/loss": 3.25},
    ]
    scalars = [
        (event.step, value.tag, value.simple_value)
        for event in events(folder.path)
        for value in event.summary.value
    ]
    assert scalars == [(1, "train/loss", 3.5), (2, "train/loss", 3.25)]


def test_resumed_run_has_each_step_once(folder: RunFolder) -> None:
    """Steps after the checkpoint are done again, so their first lines go."""
    write(folder, 0, {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0})
    write(folder, 2, {3: 3.5, 4: 4.5, 5: 5.5})
    assert [(one["step"], one["train/loss"]) for one in lines(folder)] == [
        *((1, 1.0), (2, 2.0), (3, 3.5), (4, 4.5), (5, 5.5))
    ]


def test_resumed_run_tells_tensorboard_what_to_forget(folder: RunFolder) -> None:
    """Its start event has the first step that is done again."""
    write(folder, 0, {1: 1.0, 2: 2.0, 3: 3.0})
    write(folder, 2, {3: 3.5})
    starts = [
        event.step
        for event in events(folder.path)
        if event.session_log.status == SessionLog.START
    ]
    assert starts[-1] == 3


@pytest.mark.parametrize(
    "rest", ['{"step": 3, "tra', "\0\0\0", "5", "{}", '{"step": null}', '{"step": 3}x']
)
def test_a_line_that_was_cut_off_is_dropped(folder: RunFolder, rest: str) -> None:
    """A process killed while writing must not make the run impossible to resume."""
    write(folder, 0, {1: 1.0, 2: 2.0})
    with open(folder.metrics_path, "a", encoding="utf-8") as stream:
        stream.write(rest)
    write(folder, 2, {3: 3.0})
    assert [one["step"] for one in lines(folder)] == [1, 2, 3]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_becomes_null(folder: RunFolder, value: float) -> None:
    """JSON knows no NaN; other readers stop at it."""
    write(folder, 0, {1: value, 2: 1.0})
    assert [one["train/loss"] for one in lines(folder)] == [None, 1.0]


def test_a_line_is_there_as_soon_as_it_is_written(folder: RunFolder) -> None:
    """A killed run keeps its curve, and a running one can be looked at."""
    writer = MetricsWriter(folder, 0)
    writer.write(1, {"train/loss": 1.0})
    assert len(lines(folder)) == 1
    writer.close()
