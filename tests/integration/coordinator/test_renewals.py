"""A vehicle that renews without end, over real HTTPS; and a long revocation list, over a real broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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


def test_vehicle_that_is_killed_before_it_stored_its_renewed_certificate_renews_again(tmp_path: Path) -> None:
    ca = FleetCa(tmp_path)
    with enrolling(ca.authority, ca.identity("coordinator", "cloud", hosts=HOSTS)) as url:
        folder = tmp_path / "v1"
        enrol(folder, ca.authority.token("v1"), url)
        for _ in range(3):
            command = [sys.executable, "-c", DIES, str(folder), url]
            ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
            assert ended.returncode == 9
        before = serial_of(folder)
        renew(folder, url)
        assert serial_of(folder) != before
        assert len(ca.authority.issued()) == 3, "the server's, and two"


def test_thief_who_copied_the_whole_folder_is_out_after_two_renewals_or_is_noticed(tmp_path: Path) -> None:
    ca = FleetCa(tmp_path)
    with enrolling(ca.authority, ca.identity("coordinator", "cloud", hosts=HOSTS)) as url:
        folder = tmp_path / "v1"
        enrol(folder, ca.authority.token("v1"), url)
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


def test_renewals_at_once_leave_a_certificate_that_is_good(tmp_path: Path) -> None:
    ca = FleetCa(tmp_path)
    with enrolling(ca.authority, ca.identity("coordinator", "cloud", hosts=HOSTS)) as url:
        folder = tmp_path / "v1"
        enrol(folder, ca.authority.token("v1"), url)
        with ThreadPoolExecutor(3) as threads:
            for made in [threads.submit(renew, folder, url) for _ in range(6)]:
                made.result()
        renew(folder, url)
