"""The outbox: durable, bounded, the same bytes every time."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from edge_agent.session.outbox import Outbox
from schemas.errors import StorageError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


@pytest.fixture
def outbox(tmp_path):
    box = Outbox(tmp_path / "outbox.sqlite", max_bytes=100)
    yield box
    box.close()


def test_outbox_gives_back_the_first_answer_when_another_is_put_for_the_same_task(outbox):
    outbox.put("r1", A, b"first")
    outbox.put("r1", A, b"other")
    assert outbox.get("r1", A) == b"first"


def test_outbox_keeps_parked_bytes_and_drops_ended_ones(outbox):
    outbox.put("r1", A, b"one")
    outbox.put("r1", B, b"two")
    outbox.park("r1", A)
    outbox.end("r1", B, "accepted")
    contents = outbox.contents()
    assert (contents.pending, contents.parked, contents.ended) == ((), (("r1", A),), (("r1", B),))
    assert (outbox.get("r1", A), outbox.get("r1", B)) == (b"one", None)
    outbox.unpark("r1", A)
    assert outbox.contents().pending == (("r1", A),)


def test_outbox_does_not_bring_an_ended_answer_back(outbox):
    outbox.put("r1", A, b"one")
    outbox.end("r1", A, "late")
    outbox.put("r1", A, b"again")
    outbox.unpark("r1", A)
    assert outbox.contents().ended == (("r1", A),)
    assert outbox.get("r1", A) is None


def test_outbox_lets_parked_then_oldest_pending_go_when_it_is_full(outbox):
    outbox.put("r1", A, b"x" * 40)
    outbox.put("r1", B, b"x" * 40)
    outbox.park("r1", B)
    assert outbox.put("r1", C, b"x" * 60) == ()
    assert outbox.get("r1", B) is None
    assert outbox.put("r2", A, b"x" * 40) == (("r1", A),)
    assert outbox.kept_bytes == 100


def test_outbox_refuses_an_answer_that_could_never_fit(outbox):
    with pytest.raises(StorageError, match="outbox_max_bytes"):
        outbox.put("r1", A, b"x" * 101)


def test_outbox_bounds_its_marks_of_ended_answers(tmp_path):
    outbox = Outbox(tmp_path / "outbox.sqlite", max_ended=10)
    outbox._database.execute("BEGIN")
    outbox._database.executemany(
        "INSERT INTO answer (run, task_digest, status, size) VALUES ('r', ?, 'ended', 0)",
        [(f"{index:064x}",) for index in range(20)],
    )
    outbox._database.execute("COMMIT")
    outbox.end("r", A, "accepted")
    ended = outbox.contents().ended
    assert len(ended) == 10
    assert ended[-1] == ("r", A)


def test_outbox_keeps_what_was_put_when_its_process_is_killed(tmp_path):
    path = tmp_path / "outbox.sqlite"
    program = """
        import os, signal, sys
        from pathlib import Path
        from edge_agent.session.outbox import Outbox
        box = Outbox(Path(sys.argv[1]))
        box.put("r1", "a" * 64, b"one")
        box.end("r1", "b" * 64, "accepted")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    box = Outbox(path)
    assert box.get("r1", A) == b"one"
    assert box.contents().ended == (("r1", B),)
    box.close()


def test_outbox_says_so_and_keeps_what_it_has_when_the_disk_is_full(tmp_path):
    box = Outbox(tmp_path / "outbox.sqlite")
    box.put("r1", A, b"one")
    pages = box._database.execute("PRAGMA page_count").fetchone()[0]
    box._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match=r"the disk is full\. Make room"):
        box.put("r1", B, os.urandom(100_000))
    assert box.get("r1", A) == b"one"
    assert box.contents().pending == (("r1", A),)
    box.put("r1", C, b"small")
    box.close()


def test_outbox_names_the_damage_when_the_file_is_not_a_database(tmp_path):
    path = tmp_path / "outbox.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(StorageError, match="damaged"):
        Outbox(path)
