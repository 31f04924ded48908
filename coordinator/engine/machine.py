"""The round engine: ``step(state, event) -> (state, effects)``.

Theory of operation
-------------------
A run is a conversation: the coordinator asks a task, agents answer, the scheme turns the answers into the next task,
until it returns a model. Four ideas keep that simple when agents vanish, lag, repeat themselves or lie:

1. *One open round.* At any time a run has at most one open task. Whoever knows the task can answer; nobody needs to
   have seen an earlier round.
2. *Counted once.* An answer is stored under (run, agent, digest of the task). The first is kept; the same again is a
   duplicate; another one is a conflict. Nothing is ever added up on arrival.
3. *The state of learning is a function* of who counts and of the stored answers (`learning.grow`). When a member of the
   cohort is lost, its name is removed and the function is evaluated again. Levels that come out as before are already
   answered; the first that differs is the open round. There is no other replay code. In elastic participation nothing
   is replayed: sums stand, and a private run asks the open round again, of smaller groups.
4. *Time is an event.* Nothing here reads a clock. Every open round has a deadline, every deadline leads to a closed
   round, a bounded number of extensions or a named end; so every run ends.

Phases: `gathering` agents, finding the `domain`, `recruiting` (cohort participation's first statistics round, which
fixes the cohort), `learning`; then `finished`, `failed` or `cancelled`. A private run begins with `pairing`, which
fixes the cohort, and ends with `scoring`: the model is learned, and its scores are asked for. Where a group's answers
do not add up, it is in `checking`: the group is asked whose masks fit whose. `table.TABLE` lists every move between
them.

Rounds come in two sorts. *Open to all* (domain, recruiting, elastic learning without a sample): every agent that can
answer may. Agents that come up while it is open are waited for too. Agents that missed their last deadline and have not
been heard in time since (`silent`) are not waited for. *Limited* (a fixed cohort, or a sample): only those asked count.

What happens to an answer, in this order (first match decides):

| the task is | and the answer | outcome |
|---|---|---|
| answered by this agent before | is the same | duplicate |
| answered by this agent before | differs | rejected, `conflict`; duplicate, once nothing looks back at the round |
| of a closed round, or the run has ended | | late |
| not of this run | | rejected, `unknown-task` |
| open | comes from no member of the fixed cohort | rejected, `not-asked` |
| open | comes from somebody not asked now | rejected, `others-asked` |
| open | comes from somebody whom the run leaves out | rejected, `left-out` |
| open | claims more rows than the run counts of a vehicle | rejected, `impossible: ...` (dropped) |
| open | has other rows than the agent's first answer | rejected, `data-changed` (dropped) |
| open | cannot be true | rejected, `impossible: ...` (dropped) |
| open | | accepted |

A dropped agent is not waited for; it is still counted if a good answer arrives before the round closes.

Where to read on: `table` (every move; it drives them), `state` (a run as data), `draft` (the state in the making),
`answers` (the table above), `rounds` (opened), `counting` (what a closed one does), `learning` (`grow`), `asking` (whom
to ask).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from immutables import Map
from pydantic import ValidationError

from coordinator.engine import answers, asking, checkpoint, counting, events, learning, pairing, rounds
from coordinator.engine.draft import Draft
from coordinator.engine.effects import Effect
from coordinator.engine.events import Offer
from coordinator.engine.learning import Collecting, Lookup, Openly, Privately, SchemeFaultError
from coordinator.engine.state import Round, RunState
from coordinator.engine.table import TABLE
from coordinator.specification.run import RunSpec
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import PrivateRuns, Server, is_label_scheme, private_parameters
from glassfleet.data.documents import parameter_fault
from glassfleet.discovery import DECLARE_TEXTS, DISCOVERY
from glassfleet.errors import ContributionError
from glassfleet.evaluation.influence import Influence
from glassfleet.evaluation.scores import SCORES
from glassfleet.private.groups import Terms, parameters_digest
from glassfleet.private.pairs import PAIRS
from schemas.errors import UsageError
from schemas.topics import DEFAULT_FLEET


@dataclass(frozen=True)
class Engine:
    """The machine. Holds no state: only where to find schemes and who searches a domain; by default as deployed.

    Parameters
    ----------
    lookup : callable
        Finds a scheme by name; raises NotFoundError.
    search : Server
        The server half of domain discovery.
    fleet : str
        Stands in the terms of private runs.
    """

    lookup: Lookup = catalogue.load
    search: Any = DISCOVERY.server
    fleet: str = DEFAULT_FLEET

    def step(self, state: RunState | None, event: events.Event) -> tuple[RunState, tuple[Effect, ...]]:
        """Return the state after `event`, and what the shell shall do.

        The same object comes back when nothing changed: such events need no place in the journal.

        Raises
        ------
        UsageError, NotFoundError
            The spec of a `Start` cannot be meant. No other event raises, whatever a peer sent.
        """
        if isinstance(event, events.Start):
            if state is not None:
                raise UsageError(f"run {event.spec.run!r} exists already; leave the id out to have one made up")
            draft = Draft(self._gathering(event), event.at, self)
            _gather(draft)
        elif isinstance(event, events.Checkpoint):
            return checkpoint.state_of(event, self.parameters(event.spec)), ()
        elif state is None:
            raise ValueError(f"a run begins with Start or Checkpoint, not with {event.kind}")
        else:
            draft = Draft(state, event.at, self)
            if isinstance(event, events.NoBroker):
                _note_outage(draft, event)
            else:
                _take(draft, event)
        return draft.result()

    def _gathering(self, event: events.Start) -> RunState:
        parameters, most = self.parameters(event.spec), event.spec.max_rows_each or 0
        phase = TABLE.target("", "wanted", None)
        return RunState(
            event.spec,
            parameters,
            phase,
            event.at,
            event.at,
            agents=Map(event.agents),
            max_rows_each=most,
            champion=event.champion,
            formers=event.formers,
            earlier=event.earlier,
            false_answers=event.false_answers,
        )

    def parameters(self, spec: RunSpec) -> Any:
        """Check what can be checked of a spec before it is a run, and return the scheme's parameters.

        Raises
        ------
        UsageError, NotFoundError
        """
        scheme = self.lookup(spec.scheme)
        if spec.participation not in scheme.participation:
            offered = " or ".join(sorted(scheme.participation))
            raise UsageError(
                f"scheme {spec.scheme!r} does not run in {spec.participation} participation: use {offered}"
            )
        try:
            parameters = scheme.Parameters.model_validate(spec.parameters)
        except ValidationError as fault:
            before = f"parameters of scheme {spec.scheme!r}: "
            raise UsageError(parameter_fault(spec.scheme, scheme.Parameters, fault, before)) from fault
        if spec.private is None:
            return parameters
        return private_parameters(scheme, parameters, spec.private.support)

    def check_start(self, spec: RunSpec) -> None:
        """Check a spec before it becomes a run: as `parameters`, and what a run that has begun is not asked again.

        Raises
        ------
        UsageError
            Also for parameters that promise what only a private run keeps, for a private run that would have to ask
            vehicles for texts of their own, and for support where former rounds are not asked again.
        NotFoundError
        """
        parameters, scheme = self.parameters(spec), self.lookup(spec.scheme)
        if spec.private is None:
            if isinstance(private := scheme.abilities.private, PrivateRuns):
                private.openly(parameters)
            return
        if spec.domain is None and is_label_scheme(scheme):
            raise UsageError(DECLARE_TEXTS)
        if spec.participation == "elastic" and getattr(parameters, "support", 0) > 0:
            # What rests on enough rows was counted over vehicles of whom some may be lost before the sums are asked.
            raise UsageError(
                "support goes with cohort participation: in an elastic run nothing is counted again. Write support = 0"
            )

    def server(self, state: RunState) -> Server:
        """Return the server half of the present phase."""
        if state.phase == "domain":
            return cast("Server", self.search)
        scheme = self._scheme(state)
        return cast("Server", scheme if scheme is PAIRS else scheme.server)  # of PAIRS only `layout` is used

    def impossible(self, task: Task, answer: events.Answer) -> str:
        """Return why an answer to a task of a plain run cannot be true; empty: it can. Raises NotFoundError."""
        search = {DISCOVERY.name: self.search, SCORES.name: SCORES.server}
        server = search.get(task.scheme) or self.lookup(task.scheme).server
        try:
            answers.validate(server, task, answer.contribution, answer.rows)
        except ContributionError as fault:
            return str(fault)
        return ""

    def server_parameters(self, state: RunState) -> Any:
        """Return what the server half of the present phase starts from."""
        if state.phase == "domain":
            parameters, private = learning.to_search(state, self.lookup(state.spec.scheme)), state.spec.private
            return parameters if private is None else private_parameters(DISCOVERY, parameters, private.support)
        if state.phase == "scoring":
            # What is asked is written out once: with the round open its task has it.
            return learning.to_score(state) if state.open is None else None
        return state.parameters if state.phase != "checking" else None

    def most_rows(self, state: RunState) -> int | None:
        """Return how many rows the sums of the present phase are good for; None: any number."""
        limit = getattr(self.server(state), "max_rows", None)
        try:
            return None if limit is None else int(limit(self.server_parameters(state)))
        except Exception as fault:
            raise learning.fault_of("max_rows", fault) from fault

    def terms(self, state: RunState) -> Terms:
        """Return what vehicles are told before they take part in a private run."""
        spec, private = state.spec, state.spec.private
        assert private is not None
        return Terms(
            self.fleet,
            spec.run,
            spec.nonce,
            spec.scheme,
            parameters_digest(state.parameters),
            floor=private.floor,
            company=private.company,
        )

    def harmful(self, state: RunState) -> Influence | None:
        """Return the member of a plain run's cohort without which the others gain; None: nobody is named."""
        return learning.harmful_member(self.lookup(state.spec.scheme).abilities.regressions, state, state.levels)

    def collecting(self, state: RunState) -> Collecting:
        """Return how the answers of the present phase become what its server half reduces."""
        if not state.editions:
            return Openly()
        server, most = self.server(state), self.most_rows(state)
        return Privately(state.asked_editions, self._scheme(state), server, most, state.counted_rows)

    def _scheme(self, state: RunState) -> Any:
        """Return whose questions the present phase asks: the run's scheme, or what stands in its place."""
        special: Mapping[str, Any] = {"domain": DISCOVERY, "checking": PAIRS, "scoring": SCORES}
        return special.get(state.phase) or self.lookup(state.spec.scheme)


def _take(draft: Draft, event: events.Event) -> None:
    """Take over what an event says; who is up and whether a round is complete is looked at afterwards."""
    match event:
        case events.Answer():
            answers.answer(draft, event)
        case events.TurnedAway():
            answers.turn_away(draft, event.agent, event.task_digest, event.outcome, event.reason)
        case events.Counted():
            answers.tally(draft, event.counts)
        case events.Refused():
            answers.refused(draft, event)
        case events.Malformed():
            answers.turn_away(draft, event.agent, event.task_digest, "rejected", event.reason)
        case events.AgentUp(agent=agent, offer=offer) if not draft.state.is_ended:
            _offered(draft, agent, offer)
        case events.AgentDown(agent=agent) if not draft.state.is_ended and agent in draft.state.agents:
            draft.update(agents=draft.state.agents.delete(agent))
        case events.Cancel() | events.Unable():
            _stop(draft, event)
    _gather(draft)
    _settle(draft)


def _offered(draft: Draft, agent: str, offer: Offer) -> None:
    """Take an offer; who cannot use its data is there only for a run that gathers, which then waits for no other."""
    agents = draft.state.agents
    if offer.fault and draft.state.phase != "gathering":
        if agent in agents:
            draft.update(agents=agents.delete(agent))
        return
    if agents.get(agent) != offer:
        draft.update(agents=agents.set(agent, offer))
    answers.heard(draft, agent)


def _stop(draft: Draft, event: events.Cancel | events.Unable) -> None:
    """End from outside. A finished run can only become unpublishable; the shell knows that it is not published."""
    cause = "cancelled" if isinstance(event, events.Cancel) else event.cause
    if TABLE.find(draft.state.phase, cause, draft.state) is not None:
        if isinstance(event, events.Unable) and event.cause == "model-unpublishable":
            draft.update(model=None)
        draft.move(cause, event.reason)


def _note_outage(draft: Draft, event: events.NoBroker) -> None:
    """Note for the end's reason that nobody could be heard; decides nothing, and time does not go on by it."""
    state = draft.state
    draft.at = state.at
    began = state.started_at if state.open is None else state.open.opened_at
    seconds = event.at - max(event.since, began)
    if seconds > 0 and not state.is_ended:
        draft.update(without_broker=state.without_broker + seconds)


def _gather(draft: Draft) -> None:
    state = draft.state
    if state.phase != "gathering":
        return
    (wanted, way_out), timeout = asking.wanted(state), state.spec.rounds.gather_timeout
    is_due = draft.at >= state.started_at + timeout
    if len(state.agents) < wanted and not is_due:
        return  # without a look at everybody, for each who comes
    settled = asking.settled(state)
    able = asking.able(settled) if settled.features else ()
    if len(able) >= wanted or asking.is_enough(settled, len(able), wanted):
        draft.update(features=settled.features, target=settled.target, kinds=settled.kinds)
        rounds.begin(draft, "enough-agents")
    elif is_due:
        draft.move(
            "not-enough-agents" if len(able) < state.spec.rounds.gather_agents else "too-few-for-privacy",
            f"{len(able)} of {wanted} agents that can run {state.spec.scheme!r} were up after {timeout:g} s "
            f"({asking.count_up(state)} up in all{way_out and f'; {way_out}'})"
            + draft.without_broker("that time")
            + asking.why_not(asking.unable(settled)),
        )


def _settle(draft: Draft) -> None:
    """Close the open round if it is time; a loop, because what follows may be complete at once."""
    while (current := draft.state.open) is not None:
        state, policy = draft.state, draft.state.spec.rounds
        # Numbers only, for this runs at every event: who answered or was dropped is always among those asked.
        accepted = len(state.store.get(current.digest, {}))
        waiting = state.awaited
        quorum = state.quorum(current)
        has_target = policy.target is not None and current.kind == "statistics" and not state.is_fixed
        is_due = draft.at >= current.closes_at + policy.grace
        is_complete = is_due or not waiting
        refusals = rounds.blaming(state, current) if current.dropped else {}
        # Those who have answered cannot be in a group that is founded again: it waits until all have said something.
        if is_complete and refusals and (blamed := pairing.blamed(state.editions, refusals)):
            rounds.pair_again(draft, current, blamed, refusals)
        elif has_target and accepted >= max(policy.target or 0, quorum):
            _close(draft, missed=())
        elif is_due and accepted >= quorum and rounds.is_worth_waiting(draft, current):
            rounds.extend(draft, current)
            return
        elif accepted >= quorum and (is_due or (not waiting and not counting.waits_for_former(draft, current))):
            _close(draft, missed=draft.awaited())
        elif state.is_fixed and accepted + waiting < quorum and (is_complete or not refusals):
            _fail_round(draft, f"{accepted + waiting} members are left of the {quorum} that must answer")
        elif not accepted and _all_refused(draft, current):
            _fail_round(draft, f"each of the {len(current.dropped)} asked has refused")
        elif not is_due:
            return
        elif policy.on_missed_quorum == "extend" and current.extensions < policy.extensions:
            rounds.extend(draft, current)
            return
        else:
            asked = len(current.asked)
            _fail_round(draft, f"{accepted} of {asked} asked had answered at the deadline, {quorum} must")


def _close(draft: Draft, missed: tuple[str, ...]) -> None:
    """Count the round: everyone who answered, nobody else."""
    dropped = {} if draft.state.open is None else draft.state.open.dropped
    digest = draft.state.levels[-1].digest
    members = draft.record(missed)
    try:
        if draft.state.phase == "pairing":
            counting.pair(draft, members)
            return
        server = draft.server(draft.state)
        if not draft.state.editions and not any(draft.state.store[digest][member].rows for member in members):
            kind = "test" if draft.state.phase == "scoring" else "training"
            draft.move("no-rows", f"the {len(members)} agents that answered have no {kind} rows")
            return
        counting.count(draft, server, members, {**dropped, **dict.fromkeys(missed, "deadline")})
    except SchemeFaultError as fault:
        if fault.group is None or draft.state.phase == "scoring":
            draft.move(fault.cause, str(fault))
        else:
            counting.ask_pairs(draft, fault.group, fault)


def _all_refused(draft: Draft, current: Round) -> bool:
    """Whether everybody who could answer has said that it cannot: asked again, they would say the same."""
    if (
        not current.dropped
        or len(current.dropped) < len(current.asked)
        or not all(why.startswith(asking.REFUSED) for why in current.dropped.values())
    ):
        return False
    asked = current.asked if current.limited else {*current.asked, *asking.able(draft.state)}
    return set(asked) <= set(current.dropped)


def _fail_round(draft: Draft, detail: str) -> None:
    state, current = draft.state, draft.state.open
    assert current is not None
    waiting = draft.awaited()
    others = state.lost if state.is_fixed else asking.unable(state)
    is_due = draft.at >= current.closes_at + state.spec.rounds.grace
    silent = dict.fromkeys(waiting, "deadline") if is_due else {}
    why = draft.without_broker("this round") if is_due else ""
    draft.record(waiting)
    draft.move("quorum-not-met", detail + why + asking.why_not({**others, **current.dropped, **silent}))
