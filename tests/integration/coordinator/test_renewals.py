"""A vehicle that renews without end, over real HTTPS; and a long revocation list, over a real broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from broker.identity import load_identity
from broker.servers.mosquitto import MosquittoProcess, certificate_acl
from edge_agent.enrol import EnrolmentError, enrol, renew
from schemas.topics import Topics
from tests.support.agent_bench import rows
from tests.support.authorities import HOSTS, FleetCa, number_in, serial_of
from tests.support.cloud import CoordinatorProcess
from tests.support.coordinator_http import enrolling
from tests.support.processes import ROOT, Processes, eventually

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


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
def test_fleet_hears_of_a_revocation_though_a_vehicle_renewed_as_often_as_it_could(
    processes: Processes, tmp_path: Path
) -> None:
    ca = FleetCa(tmp_path / "fleet")
    cloud = ca.identity("coordinator", "cloud", hosts=HOSTS)
    for _ in range(150):  # a list that a message of 4 KiB does not hold
        ca.identity("agent", "gone")
    ca.authority.revoke("gone", "stolen")
    good = ca.identity("agent", "good")
    with enrolling(ca.authority, cloud) as url:
        enrol(tmp_path / "evil", ca.authority.token("evil"), url)
        refusals = []
        for _ in range(30):
            try:
                renew(tmp_path / "evil", url)
            except EnrolmentError as fault:
                refusals.append(str(fault))
        assert len(refusals) == 23
        assert "evil has 8 certificates that have not expired" in refusals[0]
        assert "renew it from" in refusals[0]
    acl = certificate_acl(Topics("fleet"), coordinators=["cloud"])
    broker = MosquittoProcess(tmp_path / "state", identity=ca.identity("broker", "broker"), acl=acl)
    broker.start()
    small = {"GLASSFLEET_MAX_MESSAGE_BYTES": "4096"}
    (cloud / "crl.pem").write_bytes(ca.authority.crl_pem)
    coordinator = CoordinatorProcess(
        broker.url, tmp_path / "cloud", "--identity", str(cloud), "--api-port", "0", environment=small
    )
    try:
        data, table = processes.folder / "rows.csv", rows()
        header = ",".join([*table.features, table.target])
        np.savetxt(data, np.column_stack([table.X, table.y]), delimiter=",", header=header, comments="")
        words = ("agent", "--id", "good", "--broker", broker.url, "--identity", str(good), "--data", str(data))
        processes.start(*words, "--target", table.target, environment=small)
        eventually(lambda: number_in(load_identity(good).crl) == number_in(ca.authority.crl_pem), "the list came")
        ca.authority.revoke("evil", "stolen")
        (cloud / "crl.pem").write_bytes(ca.authority.crl_pem)
        eventually(lambda: number_in(load_identity(good).crl) == number_in(ca.authority.crl_pem), "the next came, too")
    finally:
        coordinator.end()
        processes.end()
        broker.stop()
