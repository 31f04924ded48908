"""W3C trace context of a run, made from its names: every process of the fleet knows it, and no message carries it.

A run's id is used once in a fleet, so its digest is as good as a random id, survives every restart, and costs the
protocol nothing.
"""

from __future__ import annotations

import hashlib


def trace_ids(fleet: str, run: str) -> tuple[str, str]:
    r"""Return trace id (32 hex digits) and root span id (16 hex digits) of a run.

    Returns
    -------
    tuple of str
        From SHA-256 over ``"glassfleet-trace\n{fleet}\n{run}"``; neither is all zeros.
    """
    digest = hashlib.sha256(f"glassfleet-trace\n{fleet}\n{run}".encode()).hexdigest()
    return digest[:32], digest[32:48]
