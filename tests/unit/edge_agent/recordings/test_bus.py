"""Logs of a bus with a database: what each signal was, and what was left out of it."""

from __future__ import annotations

import can
import cantools
import numpy as np
import pytest

from schemas.errors import DataError, UsageError
from tests.support.vehicle.recordings import DBC, DRIVE, J1939, engine, message, write_log


@pytest.mark.parametrize("ending", [".asc", ".blf", ".log", ".mf4", ".trc"])
def test_each_kind_of_log_has_the_same_signals(tmp_path, dbc, read, ending):
    extra = [can.Message(is_error_frame=True, timestamp=103.0, channel=0)] if ending != ".trc" else []
    extra += [message(0x100, b"", time=103.5, is_remote_frame=True, dlc=8)] if ending != ".trc" else []
    path = write_log(tmp_path / f"drive{ending}", [*DRIVE, *extra])
    signals, left_out = read(path, dbc)
    assert list(signals) == ["Speed", "Coolant", "Gear", "Torque", "Rpm", "Page", "Inside", "Outside"]
    speed, gear = signals["Speed"], signals["Gear"]
    np.testing.assert_array_equal(speed.value, [50.0, np.nan, 52.5])
    assert np.diff(speed.time).tolist() == pytest.approx([1.0, 1.0])
    assert (speed.unit, speed.low, speed.high, speed.description) == ("km/h", 0.0, 250.0, "Speed of the wheels")
    assert speed.missing == {"outside the range of the database": 1}
    assert gear.value.tolist() == ["Park", "Drive", None]
    assert gear.missing == {"SNA (a word of the database)": 1}
    assert signals["Torque"].value.tolist() == [100.0, 100.0, 100.0]
    assert signals["Coolant"].value.tolist() == [60.0, 60.0, 60.0]
    assert (signals["Inside"].value.tolist(), signals["Outside"].value.tolist()) == ([25.0], [-10.0])
    assert signals["Inside"].unit == "°C"
    assert signals["Outside"].time[0] - speed.time[0] == pytest.approx(1.5)
    expected = {"frames of an id that no database has": 1}
    if extra:
        expected |= {"error frames": 1, "remote frames": 1}
    assert {key: left_out.get(key) for key in expected} == expected


def test_words_that_are_no_values_of_a_number_are_missing(tmp_path, dbc, read):
    frame = engine(10.0)
    frame.data[3:5] = bytes([frame.data[3] & 0xF | 0xF0, 0x7F])  # 2047
    frame.data[5:7] = b"\xff\xff"
    signals, _ = read(write_log(tmp_path / "drive.log", [frame]), dbc)
    assert signals["Torque"].missing == {"SNA (a word of the database)": 1}
    assert signals["Rpm"].missing == {"all bits set, and no range in the database": 1}
    assert np.isnan(signals["Rpm"].value).all()


def test_can_fd_and_doubles(tmp_path, dbc, read):
    data = np.array([1.5]).tobytes() + bytes(54) + (4711).to_bytes(2, "little")
    frames = [message(300, data, is_fd=True), message(300, np.array([np.inf]).tobytes() + bytes(56), is_fd=True)]
    signals, _ = read(write_log(tmp_path / "drive.blf", frames), dbc)
    np.testing.assert_array_equal(signals["Exact"].value, [1.5, np.nan])
    assert signals["Far"].value.tolist() == [4711.0, 0.0]
    assert signals["Exact"].missing == {"not a number": 1}


@pytest.mark.parametrize("ending", [".kcd", ".sym", ".dbc"])
def test_each_kind_of_database_says_the_same(tmp_path, dbc, read, ending):
    dbc.write_text(DBC.replace("of\n the", "of the"), encoding="utf-8")  # which not every version writes to SYM
    known = cantools.database.load_file(dbc)
    assert isinstance(known, cantools.database.Database)
    texts = {".kcd": known.as_kcd_string, ".sym": known.as_sym_string, ".dbc": known.as_dbc_string}
    path = tmp_path / f"other{ending}"
    path.write_bytes(texts[ending]().encode("cp1252" if ending != ".kcd" else "utf-8"))
    log = write_log(tmp_path / "drive.log", DRIVE)
    ours, theirs = read(log, dbc)[0], read(log, path)[0]
    for name in ("Speed", "Coolant", "Torque", "Inside", "Outside"):
        np.testing.assert_array_equal(ours[name].value, theirs[name].value)


def test_parameter_groups_of_j1939_come_from_any_sender(tmp_path, read):
    path = tmp_path / "truck.dbc"
    path.write_text(J1939, encoding="utf-8")
    drive = [message(0x0CF00400, bytes([0, 0, 0, 0x40, 0x1F, 0, 0, 0])), message(0x18F00400, b"\0\0\0\xff\xff\0\0\0")]
    signals, _ = read(write_log(tmp_path / "drive.log", drive[:1]), path)
    assert signals["EngineSpeed"].value.tolist() == [1000.0]
    drive.append(message(0x0CF00427, b"\0\0\0\0\xfe\0\0\0"))
    signals, _ = read(write_log(tmp_path / "drive.log", drive), path)
    assert list(signals) == ["EngineSpeed from 0CF00400", "EngineSpeed from 18F00400", "EngineSpeed from 27"]
    assert signals["EngineSpeed from 18F00400"].missing == {"not available (J1939)": 1}
    assert signals["EngineSpeed from 27"].missing == {"error (J1939)": 1}


def test_channels_are_told_apart(tmp_path, dbc, read):
    frames = [engine(10.0, channel=0), engine(20.0, channel=1)]
    signals, _ = read(write_log(tmp_path / "drive.blf", frames), dbc)
    assert (signals["Speed on 1"].value[0], signals["Speed on 2"].value[0]) == (10.0, 20.0)


def test_names_depend_on_the_databases_alone(tmp_path, dbc, read):
    other = tmp_path / "other.dbc"
    other.write_text(DBC.replace(" 256 Engine", " 257 Motor").replace(" 256 ", " 257 "), encoding="utf-8")
    signals, _ = read(write_log(tmp_path / "drive.log", [engine(10.0)]), dbc, other)
    assert list(signals) == ["Engine.Speed", "Engine.Coolant", "Engine.Gear", "Engine.Torque", "Engine.Rpm"]


def test_wrong_databases_are_refused_by_name(tmp_path, dbc, read):
    log = write_log(tmp_path / "drive.log", [engine(10.0)])
    with pytest.raises(UsageError, match="--database"):
        read(log)
    with pytest.raises(UsageError, match=r"drive.log: no database of a bus"):
        read(log, log)
    other = tmp_path / "other.dbc"
    other.write_text(DBC.replace(" 256 ", " 257 "), encoding="utf-8")
    with pytest.raises(DataError, match=r"none of its 1 ids is in other.dbc: 0x100"):
        read(log, other)
    other.write_text(DBC.replace("(0.01,0)", "(0.1,0)"), encoding="utf-8")
    with pytest.raises(DataError, match=r"id 0x100 is Engine in bus.dbc, and Engine in other.dbc"):
        read(log, dbc, other)
    assert read(log, dbc, dbc)[0]["Speed"].value.tolist() == [10.0]
    short = write_log(tmp_path / "short.log", [message(256, b"\1\2")])
    with pytest.raises(DataError, match=r"frames 0x100 have 2 bytes, but Engine of bus.dbc 8"):
        read(short, dbc)


def test_short_frames_among_others_are_counted(tmp_path, dbc, read):
    signals, left_out = read(write_log(tmp_path / "d.log", [engine(1.0), message(256, b"\1\2\x64")]), dbc)
    assert (len(signals["Coolant"].value), len(signals["Rpm"].value)) == (2, 1)
    assert left_out == {"values beyond the end of a frame": 3}


def test_text_logs_tell_their_begin_in_utc_and_restart_behind_faults(tmp_path, dbc, read):
    asc = tmp_path / "drive.asc"
    asc.write_bytes(
        b"date Sam M\xc3\xa4r 4 10:06:13.500 pm 2023\nbase hex  timestamps absolute\nno internal events logged\n"
        b"Begin Triggerblock Sat Mar 4 10:06:13.500 pm 2023\n   0.000000 Start of measurement\n"
        b"   1.0 1  100  Rx   d 8 13 88 64 81 0C D0 07 00\n"
        b"   1.5 1  Speed_of_wheels  Rx   d 8 13 88 64 81 0C D0 07 00\n"
        b"\0\0\0   2.0 1  100  Rx   d 8 27 10 64 81 0C D0 07 00\n   2.5 1  Statistic: D 0\n   3.0 1  10"
    )
    signals, left_out = read(asc, dbc)
    assert signals["Speed"].value.tolist() == [50.0, 100.0]
    assert signals["Speed"].time.tolist() == [1677967573.5 + 1.0, 1677967573.5 + 2.0]
    assert left_out == {"NUL bytes": 3, "lines without a frame": 4}
    asc.write_bytes(asc.read_bytes().replace(b"absolute", b"relative"))
    with pytest.raises(DataError, match="line 2 says that each time counts from the line before"):
        read(asc, dbc)


def test_a_log_without_a_head_keeps_its_first_frame(tmp_path, dbc, read):
    asc = tmp_path / "drive.asc"
    asc.write_text("   1.0 1  100  Rx   d 8 13 88 64 81 0C D0 07 00\n")
    assert read(asc, dbc)[0]["Speed"].value.tolist() == [50.0]


def test_what_a_blf_file_lost_is_counted(tmp_path, dbc, read):
    path = write_log(tmp_path / "drive.blf", [engine(float(n % 200), time=n / 100) for n in range(9000)])
    whole, content = read(path, dbc)[0]["Speed"].value, path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    part, left_out = read(path, dbc)
    assert 0 < len(part["Speed"].value) < len(whole)
    np.testing.assert_array_equal(part["Speed"].value, whole[: len(part["Speed"].value)])
    assert left_out["containers cut at the end"] == 1
