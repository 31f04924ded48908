"""What becomes of a run's model once the run has ended: the gate lets it become current, or it stays a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.progress import progress
from console.run.follow import ROLLOUT_ENDED, follow_rollout, patiently

if TYPE_CHECKING:
    from console.client import Coordinator

_NAMED = 5


def rollout_of(api: Coordinator, model: dict[str, Any], patience: float) -> dict[str, Any] | None:
    """Return the newest rollout of a version, the gate as a rule; None: it became current without.

    Parameters
    ----------
    api : console.client.Coordinator
    model : dict
        ``name`` and ``version``, as a run has them.
    patience : float
        Seconds, at least 0, to wait for the coordinator.

    Raises
    ------
    CoordinatorError
        It is not there.
    """
    name = model["name"]
    with progress("asking what became of the model") as work:
        told = patiently(api, lambda: api.get(f"/api/rollouts/{name}"), patience, work)
    return next((each for each in reversed(told) if each["version"] == model["version"]), None)


def after_gate(api: Coordinator, model: dict[str, Any], *, as_json: bool, patience: float) -> dict[str, Any] | None:
    """Return the rollout of a version as `rollout_of`, a gate once it has ended: that takes two minutes at most."""
    told = rollout_of(api, model, patience)
    if told is None or not told["plan"].get("gate"):
        return told
    return follow_rollout(api, model["name"], told["rollout"], as_json=as_json, patience=patience)


def is_waiting(told: dict[str, Any] | None) -> bool:
    """Whether a version did not pass the gate, and waits for an operator."""
    return told is not None and bool(told["plan"].get("gate")) and told["phase"] in {"rolled-back", "stopped"}


def beside(champion: int) -> str:
    """Return what a version is compared with; 0: no version."""
    return f"v{champion}" if champion else "the constant"


def in_words(told: dict[str, Any]) -> str:
    """Return in one line what became of a version."""
    name, version, reason = told["model"], told["version"], told["reason"]
    label = f"{name} v{version}"
    if told["phase"] == "promoted":
        return f"{label} is current: {reason}"
    if is_waiting(told):
        rows = "Rows for scoring: a column split with train and test. " if "no test rows" in reason else ""
        return (
            f"{label} did not pass the gate, it stayed a candidate: {reason}. {rows}Make it current all the same: "
            f"glassfleet model promote {name} {version} --reason TEXT"
        )
    if told["phase"] not in ROLLOUT_ENDED:
        return f"{label} is being tried: glassfleet rollout status {name} --wait"
    return f"{label} is not current: {told['phase']}" + (f" ({reason})" if reason else "")


def rollout_lines(told: dict[str, Any]) -> list[str]:
    """Return a rollout as lines of text."""
    lines = [
        f"{told['rollout']}  {told['model']} v{told['version']} beside {beside(told['champion'])}  {told['phase']}"
        + (f"  ({told['reason']})" if told["reason"] else "")
    ]
    for number, stage in enumerate(told["stages"], 1):
        said = stage["verdict"] or (
            f"open, {told['needed']} needed, {told['awaited']} still awaited"
            + ("" if told["remaining"] is None else f", {told['remaining']:.0f} s left")
        )
        cannot = f", {stage['cannot']} cannot" if stage["cannot"] else ""
        lines.append(
            f"  stage {number} of {len(told['plan']['stages'])}  {stage['share']:.0%}  asked {len(stage['asked'])}, "
            f"reported {stage['reported']}{cannot}  {said}"
        )
    if told["phase"] == "opening":
        lines.append(
            f"  stage {len(told['stages']) + 1} of {len(told['plan']['stages'])}  waits for vehicles that are up"
        )
    reasons: dict[str, list[str]] = {}
    for agent, why in told["cannot"].items():
        reasons.setdefault(why, []).append(agent)
    for why, agents in reasons.items():
        more = f" and {len(agents) - _NAMED} more" if len(agents) > _NAMED else ""
        lines.append(f"  cannot score it: {', '.join(agents[:_NAMED])}{more} ({why})")
    return lines
