"""What one request to the dashboard may cost, and what is remembered for it; apart, since it loads nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RefusalLimits:
    """How much of refused answers is remembered.

    Attributes
    ----------
    runs : int
        Runs whose reasons are told apart; the one that began to be refused first gives way.
    reasons : int
        Reasons of one run that are told apart; the others are counted together.
    agents : int
        Agents that are named with one reason.
    """

    runs: int = 100
    reasons: int = 40
    agents: int = 50


@dataclass(frozen=True)
class DashboardLimits:
    """What the dashboard's pages and the JSON addresses of explanations may cost.

    Attributes
    ----------
    watchers : int
        Live pages at once, over all browsers.
    heartbeat : float
        Seconds after which a silent stream says that it is alive: proxies close silent connections, and so are dead
        watchers noticed.
    reconnect : float
        Seconds that a browser waits before it connects again.
    fleet_period, run_period : float
        Seconds between two looks at what a live page shows.
    sign_in : int
        Seconds until an operator must sign in again.
    operators : int
        Operators who are signed in at once; the one who signed in first gives way.
    form_bytes : int
        Longest form that is read.
    row_chars : int
        Longest row that is pasted into the page of forecasts; the rest is not read.
    models : int
        Models that are kept decoded; the one used least recently gives way.
    explain_at_once : int
        Explanations that are computed at a time; the others wait, for the coordinator needs the processor too.
    explain_wait : float
        Seconds that one may wait for its turn.
    summary_rules : int
        Most rules that a summary lists.
    """

    watchers: int = 64
    heartbeat: float = 15.0
    reconnect: float = 2.0
    fleet_period: float = 1.0
    run_period: float = 0.25
    sign_in: int = 8 * 3600
    operators: int = 100
    form_bytes: int = 64 * 1024
    row_chars: int = 20_000
    models: int = 16
    explain_at_once: int = 2
    explain_wait: float = 20.0
    summary_rules: int = 10_000
