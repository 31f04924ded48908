"""A vehicle that renews without end, over real HTTPS; and a long revocation list, over a real broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edge_agent.enrol import EnrolmentError, enrol, renew
from tests.support.authorities import HOSTS, FleetCa, serial_of
from tests.support.coordinator_http import enrolling
from tests.support.processes import ROOT

DIES = """
import os, sys
from pathlib import Path
from edge_agent import enrol
enrol.save_identity = lambda *_, **__: os._exit(9)
enrol.renew(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.fixture
def enrolled(tmp_path: Path) -> Iterator[tuple[FleetCa, Path, str]]:
    """An authority, the folder of a vehicle that has enrolled there, and where it renews."""
    ca, folder = FleetCa(tmp_path), tmp_path / "v1"
    with enrolling(ca.authority, ca.identity("coordinator", "cloud", hosts=HOSTS)) as url:
        enrol(folder, ca.authority.token("v1"), url)
        yield ca, folder, url


def test_vehicle_that_is_killed_before_it_stored_its_renewed_certificate_renews_again(
    enrolled: tuple[FleetCa, Path, str],
) -> None:
    ca, folder, url = enrolled
    for _ in range(3):
        command = [sys.executable, "-c", DIES, str(folder), url]
        ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
        assert ended.returncode == 9
    before = serial_of(folder)
    renew(folder, url)
    assert serial_of(folder) != before
    assert len(ca.authority.issued()) == 3, "the server's, and two"


def test_thief_who_copied_the_whole_folder_is_out_after_two_renewals_or_is_noticed(
    enrolled: tuple[FleetCa, Path, str], tmp_path: Path
) -> None:
    _, folder, url = enrolled
    shutil.copytree(folder, tmp_path / "silent")
    renew(folder, url)
    renew(folder, url)
    with pytest.raises(EnrolmentError, match=r"revoked \(replaced\)"):
        renew(tmp_path / "silent", url)
    shutil.copytree(folder, tmp_path / "greedy")
    renew(folder, url)
    renew(tmp_path / "greedy", url)
    with pytest.raises(EnrolmentError, match=r"revoked \(replaced\): enrol again"):
        renew(folder, url)


def test_renewals_at_once_leave_a_certificate_that_is_good(enrolled: tuple[FleetCa, Path, str]) -> None:
    _, folder, url = enrolled
    with ThreadPoolExecutor(3) as threads:
        for made in [threads.submit(renew, folder, url) for _ in range(6)]:
            made.result()
    renew(folder, url)
