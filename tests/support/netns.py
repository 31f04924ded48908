"""Machines with a network of their own: kernel namespaces, joined by cables and a switch that can be pulled apart.

A namespace lives as long as a process in it: when the tests are killed, the system removes everything. Nothing of this
machine's own network is touched. The fixture that makes one
asks for ``namespaces``.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from broker.servers.process import die_with_parent
from tests.support.needs import programs

T = TypeVar("T")
CLONE_NEWNET = 0x40000000


class Machine:
    """A network namespace, kept by a process that sleeps in it."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(  # `lab.processes` needs a folder for logs; this one says nothing
            [programs.path("unshare"), "--net", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - calls one C function looked up beforehand
        )
        ours = Path("/proc/self/ns/net").readlink()
        end = time.monotonic() + 30
        while Path(f"/proc/{self.pid}/ns/net").readlink() == ours:
            assert time.monotonic() < end, "the namespace did not come up"
            time.sleep(0.005)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        return self._keeper.pid

    def run(self, tool: str, *arguments: str) -> str:
        """Run ``ip`` or ``tc`` in it."""
        done = subprocess.run(
            self.command([programs.path(tool), *arguments]), capture_output=True, text=True, check=False, timeout=30
        )
        assert done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def command(self, command: Sequence[str], user: int | None = None, group: int | None = None) -> list[str]:
        """Return a command that runs another one in it, as somebody else if that is told."""
        who = [] if user is None or group is None else ["--setuid", str(user), "--setgid", str(group)]
        return [programs.path("nsenter"), "--target", str(self.pid), "--net", *who, "--", *command]

    def visit(self, function: Callable[[], T]) -> T:
        """Call a function in a thread of this process whose sockets are in it."""
        result: list[T] = []
        faults: list[BaseException] = []

        def call() -> None:
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                with Path(f"/proc/{self.pid}/ns/net").open("rb") as namespace:
                    done = libc.setns(namespace.fileno(), CLONE_NEWNET)
                assert done == 0, os.strerror(ctypes.get_errno())
                result.append(function())
            except BaseException as fault:  # noqa: BLE001 - raised again in the caller's thread
                faults.append(fault)

        # The thread ends with the call: no other code ever runs in the wrong network.
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        if faults:
            raise faults[0]
        return result[0]

    def remove(self) -> None:
        self._keeper.kill()
        self._keeper.wait()


class Network:
    """Machines on one switch, which is a machine too: ``10.77.0.N``, in the order of their names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._switch = Machine()
        self.machines: dict[str, Machine] = {}
        self._ports = {name: f"port{number}" for number, name in enumerate(names, 1)}
        self._switch.run("ip", "link", "add", "switch", "type", "bridge")
        self._switch.run("ip", "link", "set", "switch", "up")
        try:
            for name, port in self._ports.items():
                self.machines[name] = machine = Machine()
                self._switch.run(
                    "ip", "link", "add", port, "type", "veth", "peer", "name", "cable", "netns", str(machine.pid)
                )
                machine.run("ip", "address", "add", f"{self.address(name)}/24", "dev", "cable")
                machine.run("ip", "link", "set", "cable", "up")
                self._switch.run("ip", "link", "set", port, "up")
                self.plug_in(name)
        except BaseException:
            self.remove()
            raise

    def address(self, name: str) -> str:
        return f"10.77.0.{list(self._ports).index(name) + 1}"

    def pull(self, name: str) -> None:
        """Pull a cable behind the switch: packets vanish, and neither end sees that anything has happened."""
        self._switch.run("ip", "link", "set", self._ports[name], "nomaster")

    def plug_in(self, name: str) -> None:
        self._switch.run("ip", "link", "set", self._ports[name], "master", "switch")

    def pull_here(self, name: str) -> None:
        """Pull a cable at the machine's own socket: its card sees that there is no link."""
        self._switch.run("ip", "link", "set", self._ports[name], "down")

    def plug_in_here(self, name: str) -> None:
        self._switch.run("ip", "link", "set", self._ports[name], "up")

    def narrow(self, name: str, rate: str, room: int) -> None:
        """Let at most `rate` through in each direction, and lose what finds more than `room` bytes waiting."""
        for machine, device in ((self._switch, self._ports[name]), (self.machines[name], "cable")):
            machine.run(
                "tc",
                "qdisc",
                "replace",
                "dev",
                device,
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                "1600",
                "limit",
                str(room),
            )

    def lost(self, name: str) -> int:
        """Packets that `narrow` lost, in both directions."""
        result = 0
        for machine, device in ((self._switch, self._ports[name]), (self.machines[name], "cable")):
            answer = machine.run("tc", "-s", "qdisc", "show", "dev", device)
            result += int(answer.split("(dropped ")[1].split(",")[0])
        return result

    def widen(self, name: str) -> None:
        for machine, device in ((self._switch, self._ports[name]), (self.machines[name], "cable")):
            machine.run("tc", "qdisc", "del", "dev", device, "root")

    def remove(self) -> None:
        for machine in (*self.machines.values(), self._switch):
            machine.remove()
