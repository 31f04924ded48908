"""Measurements: samples as they were taken, with what marks them as none."""

from __future__ import annotations

from typing import Any

import asammdf
import numpy as np
import pytest

from schemas.errors import DataError
from tests.support.vehicle.recordings import DRIVE, mf4, write_log

# A file that asammdf cannot open ends in a fault of its own destructor.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

RECORDS = [(number / 10, number * 0.5, number % 7) for number in range(300)]


def signal(values: Any, time: Any, name: str, **more: Any) -> asammdf.Signal:
    return asammdf.Signal(np.asarray(values), np.asarray(time, dtype=float), name=name, **more)


@pytest.fixture
def save(tmp_path):
    def save(*groups, version="4.10", **more):
        measured = asammdf.MDF(version=version)
        for number, group in enumerate(groups):
            measured.append(group, acq_name=f"group {number}", common_timebase=True)
        name = tmp_path / f"drive.{'mf4' if version >= '4' else 'mdf'}"
        return measured.save(name, overwrite=True, **more)

    return save


@pytest.mark.parametrize("compression", [0, 2])
def test_samples_are_as_they_were_taken(save, read, compression):
    time, slow = np.arange(500) / 100, np.arange(7) * 0.7
    states = {"val_0": 0, "val_1": 1, "text_0": b"off", "text_1": b"on"}
    marks = {"val_0": 255, "text_0": b"no signal", "default_addr": {"a": 0.5, "b": -10.0}}
    path = save(
        [
            signal(np.sin(time).astype("f4"), time, "slip", unit="%", comment="of the <b>front</b> wheels"),
            signal(np.arange(500, dtype="i2") - 250, time, "angle", unit="deg"),
            signal(np.arange(500, dtype="u2"), time, "half", conversion={"a": 0.5, "b": -1.0}),
        ],
        [
            signal(np.array([0, 1, 1, 0, 1, 0, 0], dtype="u1"), slow, "lamp", conversion=states),
            signal(np.array([b"eco", b"sport", b"", b"eco", b"eco", b"eco", b"eco"]), slow, "mode", encoding="utf-8"),
            signal(np.array([0, 20, 255, 0, 0, 0, 255], dtype="u1"), slow, "outside", conversion=marks),
        ],
        compression=compression,
    )
    signals, left_out = read(path)
    start = signals["slip"].time[0]
    np.testing.assert_allclose(signals["slip"].time - start, time, atol=1e-6)
    np.testing.assert_array_equal(signals["slip"].value, np.sin(time).astype("f4").astype(float))
    assert (signals["slip"].unit, signals["slip"].description) == ("%", "of the front wheels")
    np.testing.assert_array_equal(signals["angle"].value, np.arange(500) - 250.0)
    np.testing.assert_array_equal(signals["half"].value, np.arange(500) * 0.5 - 1)
    np.testing.assert_allclose(signals["lamp"].time - start, slow, atol=1e-6)
    assert signals["lamp"].value.tolist() == ["off", "on", "on", "off", "on", "off", "off"]
    assert signals["mode"].missing == {"no text in the file": 1}
    assert signals["mode"].value.tolist() == ["eco", "sport", None, "eco", "eco", "eco", "eco"]
    np.testing.assert_array_equal(signals["outside"].value, [-10, 0, np.nan, -10, -10, -10, np.nan])
    assert signals["outside"].missing == {"no number in the file": 2}
    assert left_out == {}


def test_former_version_of_the_format(save, read):
    signals, _ = read(save([signal([1.0, 2.0], [0, 1], "speed", unit="km/h")], version="3.30"))
    assert (signals["speed"].value.tolist(), signals["speed"].unit) == ([1.0, 2.0], "km/h")


def test_samples_that_are_marked_invalid_are_missing(save, read):
    invalid = np.array([False, True, False])
    signals, _ = read(save([signal([1.0, 2.0, 3.0], [0, 1, 2], "speed", invalidation_bits=invalid)]))
    np.testing.assert_array_equal(signals["speed"].value, [1.0, np.nan, 3.0])
    assert signals["speed"].missing == {"marked invalid": 1}


def test_channels_of_one_name_are_told_apart(save, read):
    fast, slow = [0, 0.1], [0, 1, 2]
    path = save([signal([1, 2], fast, "speed")], [signal([3, 4, 5], slow, "speed"), signal([6, 7, 8], slow, "rpm")])
    signals, _ = read(path)
    assert list(signals) == ["speed (group 0)", "speed (group 1)", "rpm"]
    assert signals["speed (group 1)"].value.tolist() == [3, 4, 5]


def test_what_is_no_signal_over_time_is_counted(save, read, tmp_path):
    path = save([signal(np.zeros((3, 4), dtype="u1"), [0, 1, 2], "bytes"), signal([1, 2, 3], [0, 1, 2], "speed")])
    signals, left_out = read(path)
    assert list(signals) == ["speed"]
    assert left_out == {"channels of arrays, bytes or structures": 1}
    path.write_bytes(mf4(RECORDS, sync=2))
    with pytest.raises(DataError, match="no samples in it"):
        read(path)


def test_cut_in_its_samples_it_is_read_up_to_there(tmp_path, read):
    path, whole = tmp_path / "drive.mf4", mf4(RECORDS)
    path.write_bytes(whole)
    every, left_out = read(path)
    assert left_out == {}
    np.testing.assert_allclose(every["speed"].time - 1_700_000_000, [time for time, _, _ in RECORDS], atol=1e-6)
    begin = len(whole) - 14 * len(RECORDS)
    for cut in (1, 13, 14, 1500, 14 * len(RECORDS) - 14):
        path.write_bytes(whole[:-cut])
        signals, left_out = read(path)
        number = (len(whole) - cut - begin) // 14
        for name in ("speed", "rpm"):
            np.testing.assert_array_equal(signals[name].value, every[name].value[:number])
        assert left_out == {"ends cut off": 1, "records cut at the end": len(RECORDS) - number}


def test_more_records_said_than_there_are(tmp_path, read):
    path = tmp_path / "drive.mf4"
    path.write_bytes(mf4(RECORDS, claimed=1000))
    signals, left_out = read(path)
    assert (len(signals["speed"].value), left_out) == (300, {"records cut at the end": 700})


def test_frames_without_a_database_are_counted_beside_signals(tmp_path, save, read):
    path = write_log(tmp_path / "bus.mf4", DRIVE)
    measured = asammdf.MDF(path)
    measured.append([signal([1.0, 2.0], [0, 1], "speed")])
    signals, left_out = read(measured.save(tmp_path / "both.mf4", overwrite=True))
    assert list(signals) == ["speed"]
    assert left_out == {"frames of a bus, without a database": len(DRIVE)}
