"""Snapshots of rows, the agent's secret, and crash-safe writing."""

import os
import resource
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

from edge_agent.models.summed import answered
from edge_agent.session.accounts import WatchStore
from edge_agent.session.answers import Answerer
from edge_agent.session.events import RequestSeen
from edge_agent.session.private import PrivateAnswers
from edge_agent.session.snapshots import Snapshots, keyed_digest, noise_key, privacy_generator
from edge_agent.storage import load_secret, replacing
from edge_agent.worker import Budget
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.sampling import draw
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.private.ledger import Limits
from schemas import codec
from schemas.errors import StorageError
from schemas.messages import Request
from schemas.topics import Topics

SECRET = bytes(range(32))


def dataset(seed: Any = 0, rows: Any = 20, labels: Any = False) -> Any:
    rng = np.random.default_rng(seed)
    y = np.array(["yes", "nö"] * (rows // 2)) if labels else rng.random(rows)
    return Dataset(("a", "b"), "y", rng.random((rows, 2)), y)


@pytest.mark.parametrize("labels", [False, True])
def test_snapshots_give_the_first_rows_again_when_data_changed_and_the_process_restarted(tmp_path, labels):
    first = dataset(0, labels=labels)
    digest = Snapshots(tmp_path / "runs", SECRET).of_run("r1", first).digest
    again = Snapshots(tmp_path / "runs", SECRET).of_run("r1", dataset(1, labels=labels))
    assert again.digest == digest
    assert np.array_equal(again.data.X, first.X)
    assert np.array_equal(again.data.y, first.y)


def test_agent_draws_the_same_rows_after_a_restart_whatever_their_order(tmp_path):
    domain = discover(DiscoveryParameters(features=("a", "b"), target="y"), [dataset(0, rows=400)])
    scheme = catalogue.load("frt")
    task = scheme.server.start(scheme.Parameters(), domain, 0).task.limited(50)
    topics, many = Topics("fleet"), dataset(0, rows=400)
    answers = []
    for now in (many, dataset(1)):  # another process, whose data have changed since
        snapshots = Snapshots(tmp_path / "runs", SECRET)
        private = PrivateAnswers(
            topics,
            "v1",
            tmp_path,
            SECRET,
            limits=Limits(),
            choice="allowed",
            verifier=None,
            snapshots=snapshots,
            tests=lambda: dataset(2),
        )
        answerer = Answerer(
            snapshots,
            SECRET,
            private,
            tests=lambda: dataset(2),
            score=answered,
            watched=WatchStore(tmp_path / "drift.json"),
            most_bytes=10**6,
            budget=Budget(),
        )
        request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
        answers.append(answerer.compute(RequestSeen("r1", request, task), answerer.snapshot("r1", now)))
    assert answers[0].rows == 50
    assert codec.encode(answers[0].model_dump()) == codec.encode(answers[1].model_dump())
    turned = np.random.default_rng(3).permutation(400)
    drawn = [draw(data, ["a", "b"], 50) for data in (many, Dataset(("a", "b"), "y", many.X[turned], many.y[turned]))]
    assert sorted(map(tuple, drawn[0].X)) == sorted(map(tuple, drawn[1].X))
    assert abs(float(drawn[0].y.mean()) - float(many.y.mean())) < 0.15, "not those with the lowest values, say"


def test_snapshots_are_kept_in_a_bounded_number(tmp_path):
    snapshots = Snapshots(tmp_path / "runs", SECRET, max_runs=3)
    for index in range(6):
        snapshots.of_run(f"r{index}", dataset())
        os.utime(tmp_path / "runs" / f"r{index}", (index, index))
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["r3", "r4", "r5"]


def test_snapshots_say_so_when_a_snapshot_is_damaged(tmp_path):
    Snapshots(tmp_path / "runs", SECRET).of_run("r1", dataset())
    path = tmp_path / "runs" / "r1" / "rows.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StorageError, match="damaged"):
        Snapshots(tmp_path / "runs", SECRET).of_run("r1", dataset())


def test_keyed_digest_differs_by_run_secret_name_and_any_cell():
    data = dataset()
    X = data.X.copy()
    X[7, 1] = np.nextafter(X[7, 1], 2)
    digests = {
        keyed_digest(SECRET, "r1", data),
        keyed_digest(SECRET, "r2", data),
        keyed_digest(bytes(32), "r1", data),
        keyed_digest(SECRET, "r1", Dataset(("a", "c"), "y", data.X, data.y)),
        keyed_digest(SECRET, "r1", Dataset(("a", "b"), "y", X, data.y)),
    }
    assert len(digests) == 5
    assert keyed_digest(SECRET, "r1", dataset()) in digests


def test_privacy_generator_repeats_for_a_task_and_differs_otherwise():
    draws = [
        privacy_generator(noise_key(secret, run, task)).random()
        for secret in (SECRET, bytes(32))
        for run in ("r1", "r2")
        for task in ("a" * 64, "b" * 64)
    ]
    assert len(set(draws)) == 8
    assert draws[0] == privacy_generator(noise_key(SECRET, "r1", "a" * 64)).random()


def test_secret_is_refused_when_it_was_cut(tmp_path):
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(StorageError, match="restore it from a backup"):
        load_secret(tmp_path)


def test_snapshots_say_what_to_do_and_leave_nothing_half_when_no_more_can_be_written(tmp_path):
    program = """
        import resource, signal, sys
        from pathlib import Path
        import numpy as np
        from edge_agent.session.snapshots import Snapshots
        from glassfleet.data.dataset import Dataset
        from schemas.errors import StorageError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        data = Dataset(("a",), "y", np.zeros((9999, 1)), np.zeros(9999))
        try:
            Snapshots(Path(sys.argv[1]), bytes(32)).of_run("r1", data)
        except StorageError as fault:
            print(fault)
    """
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "runs")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "the file size limit is reached" in output
    assert list((tmp_path / "runs" / "r1").iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


def test_rows_with_texts_are_drawn_by_the_texts_and_not_by_their_places():
    labels = np.array(["no", "yes"] * 50)
    codes = np.tile([0.0, 1.0, 1.0, 0.0], 25)[:, None]
    one = Dataset(("c",), "y", codes, labels, categories={"c": ("wet", "yellow")})
    other = Dataset(("c",), "y", codes + 1, labels, categories={"c": ("dry", "wet", "yellow")})
    names = [[data.categories["c"][int(code)] for code in draw(data, ["c"], 30).X[:, 0]] for data in (one, other)]
    assert names[0] == names[1]


def test_replacing_leaves_the_former_file_when_writing_fails(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"former")

    def fail_half_way() -> Any:
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == b"former"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]
