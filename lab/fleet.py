"""Many agents in one process, sharing one loop: for tests, load and benchmarks. A vehicle has one agent a process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from edge_agent.agent import Agent
from edge_agent.config import AgentConfig
from edge_agent.runner import Loop, make_agent
from edge_agent.sources import Source


class Fleet:
    """Agents with data in memory, served by one thread; a context manager.

    Parameters
    ----------
    sources : mapping of agent id to Source
    broker : str
        URL.
    state_dir : Path
        Each agent's state is under it.
    settings
        Of :class:`~edge_agent.config.AgentConfig`, by their flat names; the same for all agents.

    Examples
    --------
    >>> with Fleet(sources, broker="mqtt://127.0.0.1:1883", state_dir=folder) as fleet:  # doctest: +SKIP
    ...     start_a_run_and_wait()
    """

    def __init__(self, sources: Mapping[str, Source], *, broker: str, state_dir: Path, **settings: Any) -> None:
        self.agents: dict[str, Agent] = {}
        for name, source in sources.items():
            # The data are in memory; the path is only shown.
            own = {"id": name, "broker": broker, "data": Path(name), "state_dir": state_dir}
            config = AgentConfig.model_validate({**own, **settings})
            self.agents[name] = make_agent(config, source)
        self._loop = Loop(list(self.agents.values()), queue_size=max(10_000, 100 * len(self.agents)))
        self._thread = threading.Thread(target=self._serve, name="fleet", daemon=True)
        self._fault: BaseException | None = None

    def start(self) -> None:
        """Begin serving in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End all agents cleanly.

        Raises
        ------
        GlassfleetError
            What ended the loop before, if something did.
        """
        self._loop.stop()
        if self._thread.ident is not None:
            self._thread.join()
        if self._fault is not None:
            raise self._fault

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self) -> None:
        try:
            self._loop.serve()
        except Exception as fault:  # noqa: BLE001 - raised again by `stop`, in the thread that can handle it
            self._fault = fault
