"""``glassfleet lab``: the commands of the laboratory, a package that vehicles and coordinators do without."""

from __future__ import annotations

import click

from console.lazy import LazyGroup

COMMANDS = {
    "Commands": {
        "papers": ("lab.papers.command:papers", "Make the papers' tables and figures, printed values beside ours."),
        "experiment": (
            "lab.experiments.command:experiment",
            "Run a paper's protocol on a CSV file: local, federated, central.",
        ),
        "datasets": ("lab.datasets.command:datasets", "List, fetch and verify the papers' data sets."),
        "audit": ("lab.audit.command:audit", "Measure what learning gives away: attacks on what vehicles sent."),
        "chaos": (
            "lab.chaos.command:chaos",
            "Break a fleet in every way; check that nothing is lost or counted twice.",
        ),
        "conformance": ("lab.conformance.command:conformance", "Check an agent in any language against the protocol."),
    }
}


@click.group(cls=LazyGroup, commands_table=COMMANDS)
def lab() -> None:
    """Research: the papers' tables, experiments and data sets; attacks, faults, and the protocol's examiner.

    \b
    Examples:
      glassfleet lab papers --list
    """
