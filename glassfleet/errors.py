"""What a scheme raises when it cannot use what a peer sent."""

from __future__ import annotations


class ContributionError(ValueError):
    """A contribution that cannot be true or does not fit its task. The text is the reason sent to the agent."""


class TaskError(ValueError):
    """A task that this client cannot answer, e.g. it asks for a column that the vehicle lacks."""


class PrivacyError(ValueError):
    """A vehicle does not answer, or a group cannot go on, because somebody's rows would be less hidden than agreed.

    Attributes
    ----------
    code : str
        One of :data:`REFUSALS`; it may travel. It says nothing about anybody's rows.
    detail : str
        For the log of who raises it; it does not travel.
    reason : str
        What travels: the code, and after a colon the member that is to blame if there is one.

    Parameters
    ----------
    code, detail : str
    member : str
        Who is to blame, as far as it is a single member of the group.
    """

    def __init__(self, code: str, detail: str, member: str = "") -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.reason = f"{code}: {member}" if member else code


REFUSALS = {
    "bad-member": "an announcement of the group is not good: its certificate, its seal, its key, or one id twice",
    "budget-spent": "the run's privacy budget (epsilon) is spent",
    "company-too-small": "fewer vehicles may leave together than this vehicle asks for",
    "damaged": "this vehicle's key or its record of the run, or of earlier runs, is lost or damaged",
    "few-new-rows": "few rows came or went since the last private run, and its rows are gone",
    "impossible-sum": "a group's sum cannot be true: one of its members added something else than its sums",
    "no-rows": "too few rows",
    "not-member": "this vehicle is not in the edition, or with another key or other rows",
    "not-private": "the request is not part of the private run that this vehicle announced itself for",
    "other-answer": "the question was answered before, with other numbers",
    "other-domain": "the run has asked with another domain before",
    "other-edition": "the edition is not one that may follow those that were answered",
    "other-layout": "coordinator and vehicle do not agree which number stands where",
    "other-model": "the model to be scored is not of the run's scheme, parameters and domain",
    "other-roster": "the group's members were others before",
    "run-left": "this vehicle could not answer an earlier task of the run",
    "run-over": "the run ended here before",
    "single-out": "with sums that were answered before, it would disclose too few vehicles",
    "text-column": "a column holds text: declare it in a domain (docs/explanation/private-runs.md)",
    "too-few": "fewer members than this vehicle speaks in, or too few of an earlier run over some of these rows",
    "too-many-questions": "the run has asked as often as was announced",
    "too-many-runs": "another private run over the same rows is open, or there were too many",
    "unknown-run": "the coordinator does not name an earlier run over some of these rows",
}
"""Why something private is refused, by code."""
