"""What becomes of a run's model once the run has ended: the gate lets it become current, or it stays a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from console.operator.follow import ROLLOUT_ENDED, follow_rollout, patiently
from console.progress import progress

if TYPE_CHECKING:
    from console.client import CoordinatorClient

_NAMED = 5


def rollout_of(api: CoordinatorClient, model: dict[str, Any], patience: float) -> dict[str, Any] | None:
    """Return the newest rollout of a version, the gate as a rule; None: it became current without.

    Parameters
    ----------
    api : console.client.CoordinatorClient
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
        trials = patiently(api, lambda: api.get(f"/api/rollouts/{name}"), patience, work)
    return next((each for each in reversed(trials) if each["version"] == model["version"]), None)


def after_gate(
    api: CoordinatorClient, model: dict[str, Any], *, as_json: bool, patience: float
) -> dict[str, Any] | None:
    """Return the rollout of a version as `rollout_of`, a gate once it has ended: that takes two minutes at most."""
    trial = rollout_of(api, model, patience)
    if trial is None or not trial["plan"].get("gate"):
        return trial
    return follow_rollout(api, model["name"], trial["rollout"], as_json=as_json, patience=patience)


def refused_from_sums(api: CoordinatorClient, model: dict[str, Any], patience: float) -> str:
    """Return why the model of a private run stayed a candidate, in one line; empty: it did not.

    No vehicle tries it: the run's summed scores decide as it ends.
    """
    name, version = model["name"], model["version"]
    with progress("asking what became of the model") as work:
        history = patiently(api, lambda: api.get(f"/api/models/{name}/history"), patience, work)
    if (history["candidate"] or {}).get("version") != version:
        return ""
    reasons = [each.get("reason", "") for each in history["decisions"] if each.get("version") == version]
    return _stayed(name, version, reasons[-1] if reasons else "")


def is_waiting(trial: dict[str, Any] | None) -> bool:
    """Whether a version did not pass the gate, and waits for an operator."""
    return trial is not None and bool(trial["plan"].get("gate")) and trial["phase"] in {"rolled-back", "stopped"}


def beside(champion: int) -> str:
    """Return what a version is compared with; 0: no version."""
    return f"v{champion}" if champion else "the constant"


def in_words(trial: dict[str, Any]) -> str:
    """Return in one line what became of a version."""
    name, version, reason = trial["model"], trial["version"], trial["reason"]
    label = f"{name} v{version}"
    if trial["phase"] == "promoted":
        return f"{label} is current: {reason}"
    if is_waiting(trial):
        return _stayed(name, version, reason)
    if trial["phase"] not in ROLLOUT_ENDED:
        return f"{label} is being tried: glassfleet model rollout status {name} --wait"
    return f"{label} is not current: {trial['phase']}" + (f" ({reason})" if reason else "")


def _stayed(name: str, version: int, reason: str) -> str:
    rows = "Rows for scoring: a column split with train and test. " if "no test rows" in reason else ""
    return (
        f"{name} v{version} did not pass the gate, it stayed a candidate: {reason}. {rows}Make it current all the "
        f"same: glassfleet model promote {name}@{version} --reason TEXT"
    )


def rollout_lines(trial: dict[str, Any]) -> list[str]:
    """Return a rollout as lines of text."""
    lines = [
        f"{trial['rollout']}  {trial['model']} v{trial['version']} beside {beside(trial['champion'])}  {trial['phase']}"
        + (f"  ({trial['reason']})" if trial["reason"] else "")
    ]
    for number, stage in enumerate(trial["stages"], 1):
        text = stage["verdict"] or (
            f"open, {trial['needed']} needed, {trial['awaited']} still awaited"
            + ("" if trial["remaining"] is None else f", {trial['remaining']:.0f} s left")
        )
        cannot = f", {stage['cannot']} cannot" if stage["cannot"] else ""
        lines.append(
            f"  stage {number} of {len(trial['plan']['stages'])}  {stage['share']:.0%}  asked {len(stage['asked'])}, "
            f"reported {stage['reported']}{cannot}  {text}"
        )
    if trial["phase"] == "opening":
        lines.append(
            f"  stage {len(trial['stages']) + 1} of {len(trial['plan']['stages'])}  waits for vehicles that are up"
        )
    reasons: dict[str, list[str]] = {}
    for agent, why in trial["cannot"].items():
        reasons.setdefault(why, []).append(agent)
    for why, agents in reasons.items():
        more = f" and {len(agents) - _NAMED} more" if len(agents) > _NAMED else ""
        lines.append(f"  cannot score it: {', '.join(agents[:_NAMED])}{more} ({why})")
    return lines
