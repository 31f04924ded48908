"""The model registry: one version per run, kept in the journal's database, shown on retained topics.

Which version a name stands for is decided apart from its registration: see `coordinator.models.aliases`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import structlog

from coordinator.engine import Publish, RunState
from coordinator.journal.port import Decision, Journal, StoredModel
from coordinator.models.aliases import CURRENT, SIGNED, Aliases
from coordinator.models.central import CentralModel
from coordinator.models.signatures import Signatures
from glassfleet.data.domain import Domain
from glassfleet.evaluation.paired import MOST_FORMERS, from_sums
from glassfleet.evaluation.scores import same_target
from glassfleet.explain.difference import moved
from glassfleet.model.baseline import recorded
from schemas.codec import document_digest
from schemas.errors import DamagedError, DocumentError, NotFoundError, UsageError, VerificationError
from schemas.record import CENTRAL, ModelRecord, Training

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from schemas.trust.signing import Signer, Verifier


_log = structlog.get_logger("coordinator")

LONGEST = 2**31 - 1
"""The version that is longest to write: what fits with it fits with any."""

LOOKS: Final = 10
"""Later versions that are looked at for a drift: of an elastic run none tells of one."""


@dataclass(eq=False)
class Registry:
    """Records of finished models.

    Parameters
    ----------
    software : str
        Written into records.
    wall : callable
        Wall clock, seconds since the epoch.
    signer : callable or None
        Returns who signs records now (a renewed certificate counts from its renewal); None: they are not signed.
    verifier : Verifier or None
        Knows whom to trust; None: no signature is looked at.
    """

    journal: Journal
    aliases: Aliases
    fleet: str
    software: str
    wall: Callable[[], float]
    signer: Callable[[], Signer] | None = None
    verifier: Verifier | None = None
    _signatures: Signatures | None = field(init=False)

    def __post_init__(self) -> None:
        signer, verifier = self.signer, self.verifier
        self._signatures = None if signer is None or verifier is None else Signatures(signer, verifier)
        self.aliases.apply(self.journal.decisions())

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Write decisions down, all or none, and take them over; raises StorageError and changes nothing."""
        if decisions:
            self.journal.append((), decisions)
            self.aliases.apply(decisions)

    def history(self, name: str) -> list[Decision]:
        """Return all decisions about a model, oldest first; raises NotFoundError when there is no such model."""
        self.heads(name)
        return self.journal.decisions(name)

    def before(self, name: str) -> int:
        """Return the version below the current one that was current last; raises NotFoundError when there is none."""
        known = {model.version for model in self.heads(name) if not model.is_damaged}
        current = self.aliases.of(name).version
        for each in reversed(self.journal.decisions(name)):
            if each.kind == CURRENT and each.body["version"] < current and each.body["version"] in known:
                return int(each.body["version"])
        raise NotFoundError(f"model {name!r}: no version before {current} was ever current; name one with --to")

    def add(self, effect: Publish, state: RunState) -> StoredModel:
        """Register the model of a finished run; the same run gets the same version again, however often."""

        def make(version: int) -> tuple[str, bytes]:
            record = self._record(effect, state, version, parents, drift)
            return record.digest, record.to_bytes()

        # Before the transaction: it holds the database.
        earlier = self._earlier(effect)
        parent = next(filter(None, (_read(self, each.name, each.version) for each in reversed(earlier))), None)
        parents, drift = [] if parent is None else [parent[0].digest], self._drift(state, earlier)

        return self.journal.add_model(effect.name, effect.run, make)

    def add_reference(self, reference: CentralModel, about: str, check: Callable[[ModelRecord], None]) -> StoredModel:
        """Register a model of no run; the same document gets the same version of the same name again.

        Parameters
        ----------
        about : str
            Where it comes from, in an operator's words.
        check : callable
            Raises what stands against publishing the record, before it is registered.

        Raises
        ------
        UsageError
            Another model has the id that stands for its run.
        """

        def record(version: int) -> ModelRecord:
            return self._written(
                name=reference.name,
                version=version,
                digest=reference.digest,
                document=reference.document,
                run=reference.run,
                scheme=reference.scheme,
                cohort=[],
                domain_contributors=[],
                parameters={"source": CENTRAL, "about": about[:500]},
                training=Training(),
            )

        check(record(LONGEST))
        stored = self.journal.add_model(
            reference.name, reference.run, lambda version: (reference.digest, record(version).to_bytes())
        )
        if (stored.name, stored.digest) != (reference.name, reference.digest):
            raise UsageError(
                f"the id {stored.run!r} stands for this reference, and model {stored.name!r} version "
                f"{stored.version} is of a run of that id: the reference cannot be registered"
            )
        return stored

    def check_signatures(self) -> None:
        """Log which of the versions that names stand for nobody can verify, see `Signatures.check`."""
        if self._signatures is not None:
            pinned = sorted(self.aliases.pinned())
            self._signatures.check(lambda: filter(None, (self.journal.model(*each) for each in pinned)))

    def sign_by_hand(self, name: str, version: int, digest: str) -> tuple[StoredModel, StoredModel, dict[str, str]]:
        """Return a version as it is and as an operator's word makes it, and what to write down about that.

        Raises
        ------
        NotFoundError
            No such model or version.
        UsageError
            The coordinator has no identity, or one that is refused.
        DocumentError
            The record is damaged, or another document than was registered, or looked at.
        """
        model = self.get(name, version)
        if self._signatures is None:
            raise UsageError("this coordinator signs nothing: start it with --identity")
        signed, signer, former = self._signatures.by_hand(model, digest)
        return model, signed, {"signer": signer, "former": former}

    def keep_signed(self, model: StoredModel, about: dict[str, str]) -> None:
        """Store a record that was signed again, with an operator's decision; raises StorageError, changes nothing."""
        body = {"version": model.version, "digest": model.digest, **about}
        self.journal.put_record(model, [self.aliases.decision(model.name, SIGNED, body)])

    def is_retained(self, model: StoredModel, keep: int) -> bool:
        """Whether a version is among the newest `keep` of its name, or one that the name stands for."""
        is_newest = model.version in self.journal.newest(model.name, keep)
        return is_newest or (model.name, model.version) in self.aliases.pinned()

    def has(self, effect: Publish) -> bool:
        """Whether the model was registered already: in an earlier life of the coordinator."""
        return any(model.run == effect.run for model in self.journal.heads(effect.name))

    def longest_record(self, effect: Publish, state: RunState) -> ModelRecord:
        """Write a model down without registering it, as long as its record can get; raises whatever the scheme does."""
        drift = self._drift(state, self._earlier(effect)) if state.drift else {}
        return self._record(effect, state, LONGEST, ["0" * 64], drift)

    def _earlier(self, effect: Publish) -> list[StoredModel]:
        """Return the versions of other runs; no record is read."""
        return [each for each in self.journal.heads(effect.name) if each.run != effect.run]

    def _drift(self, state: RunState, earlier: Sequence[StoredModel]) -> dict[str, Any]:
        """Return how far the version in use has moved tonight, and what that means after the nights before."""
        if not state.drift or state.champion is None:
            return {}
        digests, of = [each.digest for each in earlier], state.drift["of"]
        later = earlier[digests.index(of) + 1 :] if of in digests else []
        records = [found[1] for each in later if (found := _read(self, each.name, each.version)) is not None]
        nights = [(record.created, record.parameters) for record in records]
        now = datetime.fromtimestamp(self.wall(), tz=UTC).isoformat(timespec="seconds")
        domain = Domain.from_document(state.champion["domain"])
        return {**state.drift, "moved": moved([*nights, (now, {"drift": state.drift})], of, domain)}

    def _record(
        self, effect: Publish, state: RunState, version: int, parents: list[str], drift: Mapping[str, Any]
    ) -> ModelRecord:
        document = effect.model.to_document()
        return self._written(
            name=effect.name,
            version=version,
            digest=document_digest(document),
            document=document,
            run=effect.run,
            scheme=state.spec.scheme,
            cohort=list(effect.cohort),
            domain_contributors=list(effect.domain_contributors),
            parents=parents,
            parameters={
                "participation": state.spec.participation,
                "seed": state.spec.seed,
                "rounds": state.spec.rounds.model_dump(mode="json"),
                # With the cohort, what a central reference needs to learn from the same rows.
                **({"max_rows_each": state.max_rows_each} if state.max_rows_each else {}),
                **({"window": window.model_dump(exclude_none=True)} if (window := state.spec.window) else {}),
                **({"private": dict(state.private), "scores": dict(state.scores)} if state.private else {}),
                # Without it nobody could learn the model again: it depends on who was in which group.
                **({"withheld": state.summary["withheld"]} if "withheld" in state.summary else {}),
                **({"held_back": how} if (how := _held_back(state, effect.cohort)) else {}),
                **({"without": list(state.spec.without)} if state.spec.without else {}),
                **recorded(state.summary, state.errors),
                **({"drift": drift} if drift else {}),
            },
            training=_training(state),
        )

    def _written(self, **fields: Any) -> ModelRecord:
        """Return a record that is written down now, signed where there is a signer."""
        created = datetime.fromtimestamp(self.wall(), tz=UTC).isoformat(timespec="seconds")
        record = ModelRecord(fleet=self.fleet, created=created, software=self.software, **fields)
        return record if self.signer is None else record.signed_by(self.signer())

    def names(self) -> list[str]:
        """Names of all models, sorted."""
        return sorted(self.by_name())

    def by_name(self) -> dict[str, list[StoredModel]]:
        """All versions of all models by name, oldest first; no record is read."""
        heads = self.journal.heads()
        return {name: list(group) for name, group in groupby(heads, key=lambda head: head.name)}

    def heads(self, name: str) -> list[StoredModel]:
        """All versions of a model, oldest first, damaged ones too; no record is read.

        Raises
        ------
        NotFoundError
            There is none.
        """
        models = self.journal.heads(name)
        if not models:
            raise NotFoundError(f"no model {name!r}; known: {', '.join(self.names()) or 'none'}")
        return models

    def get(self, name: str, version: int) -> StoredModel:
        """Return one version; raises NotFoundError when there is none, DamagedError when it is not as it was."""
        model = self.journal.model(name, version) if 0 < version <= LONGEST else None
        if model is None:
            known = ", ".join(str(each.version) for each in self.heads(name))
            raise NotFoundError(f"model {name!r} has no version {version}; it has {known}")
        if model.is_damaged:
            raise DamagedError(
                f"version {version} of model {name!r} is damaged in the journal, and not served: restore the "
                "journal from a backup, or use another version"
            )
        return model


def _rows(state: RunState) -> int:
    if state.spec.private is None:
        return sum(state.frozen[agent][0] for agent in state.cohort)
    return int(state.private.get("rows", 0))  # nobody tells its own number


def _held_back(state: RunState, cohort: Sequence[str]) -> dict[str, int]:
    """Return how many vehicles hold which rows back to score models, see `schemas.messages.AgentState`."""
    offers = [state.agents[agent] for agent in cohort if agent in state.agents]
    return dict(sorted(Counter(offer.held_back for offer in offers if offer.held_back).items()))


def _training(state: RunState) -> Training:
    dropped: dict[str, str] = {}
    for summary in state.rounds:
        dropped.update(summary.dropped_agents)
    dropped.update(state.lost)
    counted = {*state.cohort}
    sums_digest = state.summary.get("sums_digest", "")
    return Training(
        rounds=len(state.rounds),
        rows=_rows(state),
        dropped={agent: reason for agent, reason in sorted(dropped.items()) if agent not in counted},
        nullified_cells=state.nullified,
        sums_digest=sums_digest if isinstance(sums_digest, str) else "",
    )


def moved_since(registry: Registry, record: ModelRecord) -> list[str]:
    """Return a sentence for each rule and input of a version that has moved; from any thread."""
    later = [each.version for each in registry.heads(record.name) if each.version > record.version]
    for version in later[: -LOOKS - 1 : -1]:
        found = _read(registry, record.name, version)
        drift = {} if found is None else found[1].parameters.get("drift", {})
        if drift.get("of") == record.digest:
            return list(drift["moved"])
    return []


# --- the best of the versions that were in use: what a new version is compared with, beside the present one -----------


OPERATORS = ("promoted", "rolled-back")
"""Causes by which a version is current because an operator says so: no earlier one counts as better than that."""


def best_known(
    registry: Registry, aliases: Aliases, name: str, known: Mapping[int, float], *, private: bool
) -> list[tuple[StoredModel, ModelRecord]]:
    """Return what a new version of a name is compared with beside the present one, the best first.

    That are versions that were in use since an operator last decided which one is; at most `MOST_FORMERS`, and those
    alone that have the present one's target and can be read.

    Parameters
    ----------
    known : mapping of int to float
        How large the error of versions was when they were scored last, relative to one of them. Others come last.
    private : bool
        Whether a private run asks. Else none of such a run is returned: vehicles tell no scores of these.
    """
    current = aliases.current.get(name)
    present = None if current is None else _read(registry, name, current.version)
    if current is None or present is None:
        return []
    used: dict[int, None] = {}
    for each in registry.journal.decisions(name):
        if each.kind == CURRENT:
            used = {} if each.body["cause"] in OPERATORS else used
            used.pop(each.body["version"], None)
            used[each.body["version"]] = None
    result: list[tuple[StoredModel, ModelRecord]] = []
    latest_first = list(used)[::-1]
    for version in sorted(latest_first, key=lambda version: known.get(version, math.inf)):
        found = None if version == current.version else _read(registry, name, version)
        if found is None or (found[1].is_private and not private) or len(result) == MOST_FORMERS:
            continue
        if same_target(found[1].document, present[1].document):
            result.append(found)
    return result


def scored_last(registry: Registry, name: str) -> dict[int, float]:
    """Return how large the errors of versions were in the last private run of a name, relative to its own version."""
    versions = {each.digest: each.version for each in registry.by_name().get(name, ())}
    newest = _read(registry, name, max(versions.values(), default=0)) if versions else None
    if newest is None:
        return {}
    beside = newest[1].parameters.get("scores", {}).get("beside", {})
    sums = {versions[digest]: each for digest, each in beside.items() if each[0] and digest in versions}
    known = {version: -from_sums(*each).change for version, each in sums.items()}
    return known and known | {newest[0].version: 0.0}


def _read(registry: Registry, name: str, version: int) -> tuple[StoredModel, ModelRecord] | None:
    try:
        model = registry.get(name, version)
        return model, ModelRecord.load(model.record)
    except (NotFoundError, DamagedError, DocumentError, VerificationError):
        return None
