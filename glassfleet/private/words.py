"""What is told of private runs, for people: the same words on the command line, the dashboard and in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glassfleet.private.between import COMPANY, GROUP, WAITS

NAMED = 8
"""Most inputs that a sentence names."""

WHY_NO_VEHICLES = "no vehicle tells its own scores in a private run; these are sums over all who answered"

_QUESTIONS = {
    "keys": "keys: who takes part, and its public key",
    "pairs": "pairs: whose masks fit whose, as answers did not add up",
    "scores": "scores: test errors, summed over the fleet",
}


def question(kind: str) -> str:
    """Return what a round of this kind asks, where that is no question of the scheme; else the kind itself."""
    return _QUESTIONS.get(kind, kind)


def protection(private: Mapping[str, Any]) -> str:
    """Return in one sentence what protected the answers of a run; empty for a run that was not private.

    Parameters
    ----------
    private : Mapping
        ``private`` of a run's document or of a record's parameters; or, before the model is learned, of the run's spec.
    """
    if not private:
        return ""
    floor, company = private["floor"], private["company"]
    if "vehicles" not in private:
        return (
            f"private: only sums over {floor} or more vehicles are seen; nobody leaves alone, but {company} or more "
            "together"
        )
    support = private.get("support", 0)
    rests = f", none of which rests on fewer than {support} rows" if support else ""
    alike = _alike(private.get("without_slopes", ()))
    parts = ", ".join(f"{private[name]} {name if private[name] != 1 else name[:-1]}" for name in ("groups", "editions"))
    return (
        f"private: only sums over {floor} or more of its {private['vehicles']} vehicles were seen ({parts}){rests}; "
        f"nobody left alone, but {company} or more together{alike}"
    )


def _alike(names: Sequence[str]) -> str:
    """Return why no rule has a slope of some inputs."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    shown = ", ".join(names[:NAMED])
    return f"; rules have no slopes of {shown}{more}, as rows are alike there or in the target, or too few"


def runs_left(document: Mapping[str, Any]) -> str:
    """Return how many more private runs over these rows there can be, and what was spent; empty where nobody said.

    Parameters
    ----------
    document : Mapping
        Of a run: ``runs_left`` and ``spent_in``.
    """
    left, spent = document.get("runs_left"), document.get("spent_in") or ()
    in_which = ", ".join(f"{each['run']} ({each['ended'][:10]})" for each in spent)
    if not left:
        return f"{spent[0]['agent']} answered over these rows before, in {in_which}" if spent else ""
    agent, fewest = min(left.items(), key=lambda each: (each[1], each[0]))
    more = f"{fewest - 1 or 'no'} more private run{'' if fewest == 2 else 's'}"
    before = f"; it answered in {in_which}" if in_which else ""
    return (
        f"{more} over these rows, if this one asked anything new: that is what {agent} allows, the least of all{before}"
    )


def left_out(agents: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return who went as company, and which vehicles wait for others, a sentence each.

    Parameters
    ----------
    agents : Mapping
        ``agents`` of a run's document.
    """
    reasons = {agent: str(each.get("reason", "")) for agent, each in sorted(agents.items())}
    company = [agent for agent, reason in reasons.items() if reason.startswith(COMPANY)]
    return [
        *([f"as company, for this run only: {', '.join(company)}"] if company else []),
        *(f"{agent} {reason}" for agent, reason in reasons.items() if reason.startswith((WAITS, GROUP))),
    ]


def figures(scores: Mapping[str, Any], unit: str = "") -> str:
    """Return the fleet's scores in one sentence; empty when there are none to tell of.

    Parameters
    ----------
    scores : Mapping
        See `glassfleet.evaluation.scores`.
    unit : str
        Of the target.
    """
    if not scores:
        return ""
    if "missing" in scores:
        return f"no scores: {scores['missing']}"
    in_unit = f" {unit}" if unit and scores["metric"] == "rmse" else ""
    names = {"champion": "the version before", "local": "each alone", "constant": "a constant"}
    others = [f"{words} {scores[name]:.4g}{in_unit}" for name, words in names.items() if name in scores]
    text = (
        f"{scores['metric'].upper()} over {scores['rows']} test rows of {scores['vehicles']} vehicles: "
        f"{scores.get('candidate', float('nan')):.4g}{in_unit}"
    )
    if not scores["compared"]:
        return text
    other = "champion" if "champion" in scores["compared"] else "constant"
    return (
        f"{text}; {', '.join(others)}; worse off than with {names[other]}: {scores['worse'].get(other, 0)} of "
        f"{scores['compared'].get(other, 0)}"
    )
