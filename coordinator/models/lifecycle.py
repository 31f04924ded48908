"""The models of a coordinator: registered when a run is finished, tried, promoted, rolled back, and shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from coordinator.engine import Publish, RunState
from coordinator.journal.port import Decision, StoredModel
from coordinator.models.aliases import CANDIDATE, CURRENT, Aliases, Cause
from coordinator.models.central import CentralModel, check_learned
from coordinator.models.publication import ModelPublisher
from coordinator.models.registry import Registry
from coordinator.models.rollout.shell import Rollouts
from coordinator.models.rollout.verdict import judged_sums
from coordinator.specification.rollout import GATE
from glassfleet.contract.scheme import Scheme
from schemas.codec import document_digest
from schemas.errors import DamagedError, DocumentError, NotFoundError, UsageError, VerificationError
from schemas.messages import ModelPointer, Trial
from schemas.record import ModelRecord

_log = structlog.get_logger("coordinator")


@dataclass(eq=False)
class Models:
    """What a name stands for, and who may change it: finished runs, operators, rollouts.

    Parameters
    ----------
    now : callable
        The coordinator's own time, seconds.
    lookup : callable
        Finds a scheme by name; raises NotFoundError.
    """

    registry: Registry
    aliases: Aliases
    publisher: ModelPublisher
    rollouts: Rollouts
    metrics: Counter[str]
    now: Callable[[], float]
    lookup: Callable[[str], Scheme]

    def resume(self, decisions: list[Decision]) -> None:
        """Go on where the journal ends."""
        self.rollouts.resume(decisions)

    def check_signatures(self) -> None:
        """Log which of the versions that names stand for nobody can verify, when something has changed."""
        self.registry.check_signatures()

    def sign(self, name: str, version: int, digest: str, reason: str = "") -> dict[str, Any]:
        """Sign a version whose signature cannot be verified, because an operator has checked it.

        Parameters
        ----------
        digest : str
            Of the document that the operator has looked at.
        reason : str
            Why, in the operator's words.

        Returns
        -------
        dict
            ``name``, ``version``, ``digest``, ``signer``; ``former``: what was wrong with the former signature, empty
            when it was good; ``signed``: whether it was replaced.

        Raises
        ------
        NotFoundError, UsageError, DocumentError
            As `Registry.sign_by_hand`.
        StorageError
            The journal cannot be written.
        """
        former, model, about = self.registry.sign_by_hand(name, version, digest)
        if model != former:
            # An operator's word comes first: no vehicle shall have a signature that nobody has written down.
            self.registry.keep_signed(model, {**about, "reason": reason[:500]})
            self.publisher.signature(former, model)
            _log.warning("model-signed-by-hand", name=name, version=version, digest=digest, **about, reason=reason)
        return {"name": name, "version": version, "digest": model.digest, **about, "signed": model != former}

    def connected(self) -> None:
        """Publish all that is retained again."""
        self.check_signatures()
        self.publisher.models()
        self.rollouts.connected()

    def pinned(self) -> set[tuple[str, int]]:
        """Return names and versions of what stays, however old its run is.

        What the names stand for, what rollouts compare, the next one will compare, and what a rollback would go to.
        """
        kept = self.aliases.pinned() | self.rollouts.compared()
        for name in self.aliases.current:
            for private in (False, True):
                kept |= {(name, each.version) for each, _ in self.rollouts.formers(name, private=private)}
            with suppress(NotFoundError):
                kept.add((name, self.registry.before(name)))
        return kept

    def register(self, effect: Publish, state: RunState, log: Any) -> dict[str, Any]:
        """Register the model of a finished run; it is tried before it becomes current.

        Returns
        -------
        dict
            Its name, version and digest.
        """
        model = self.registry.add(effect, state)
        self.publisher.model(model, self._decide_about(model, state))
        about = {"name": model.name, "version": model.version, "digest": model.digest}
        self.metrics["models.published"] += 1
        log.info("model-published", **about)
        return about

    def promote(self, name: str, version: int, reason: str = "") -> ModelPointer:
        """Make a version current.

        Raises
        ------
        NotFoundError
            No such model or version.
        UsageError
            It is current already, or a central reference.
        """
        model = self.registry.get(name, version)
        check_learned(model)
        return self._move(model, "promoted", reason)

    def rollback(self, name: str, to: int | None, reason: str) -> ModelPointer:
        """Make a lower version current again; None: the one that was current before.

        Raises
        ------
        NotFoundError
            No such model or version, or none before.
        UsageError
            The version is not lower than the current one, no reason is given, or it is a central reference.
        """
        if not reason.strip():
            raise UsageError("say why: every vehicle and every auditor will read the reason of a rollback")
        model = self.registry.get(name, self.registry.before(name) if to is None else to)
        check_learned(model)
        current = self.aliases.of(name).version
        if model.version >= current:
            raise UsageError(
                f"version {model.version} is not below the current one, {current}: to go forward, promote it"
            )
        return self._move(model, "rolled-back", reason)

    def central(self, reference: CentralModel, about: str = "") -> ModelPointer:
        """Register a model learned centrally elsewhere, for vehicles to compare a name with.

        See `coordinator.models.central`.

        One that was registered before is made current again, as an operator's promotion or rollback would.

        Parameters
        ----------
        about : str
            Where it comes from, in an operator's words.

        Raises
        ------
        BrokerError, UsageError
            It is too large for this broker, or the fleet has a model of the reference's name.
        """
        name = reference.name
        current = self.aliases.current.get(name)
        if current is not None and not ModelRecord.load(self.registry.get(name, current.version).record).is_reference:
            raise UsageError(f"{name!r} is the name of a model that the fleet has learned")
        stored = self.registry.add_reference(reference, about, self.publisher.check_record)
        if current is not None and current.version == stored.version:
            return current
        # One that was stored and whose decision could not be written was never on the broker: it is published.
        if current is not None and self._was(name, stored.version, CURRENT):
            cause: Cause = "promoted" if stored.version > current.version else "rolled-back"
            return self._move(stored, cause, about or "the same document was registered again")
        self.publisher.model(stored, self.become_current(stored, "published", about))
        self.metrics["models.references"] += 1
        _log.info("reference-registered", name=name, version=stored.version, digest=stored.digest)
        return self.aliases.current[name]

    def _move(self, model: StoredModel, cause: Cause, reason: str) -> ModelPointer:
        current = self.aliases.current.get(model.name)
        if current is not None and current.version == model.version:
            raise UsageError(f"model {model.name!r} version {model.version} is current already")
        self.publisher.moved(model.name, self.become_current(model, cause, reason))
        self.metrics[f"models.{cause}"] += 1
        _log.info("model-" + cause, name=model.name, version=model.version, reason=reason)
        return self.aliases.current[model.name]

    def _decide_about(self, model: StoredModel, state: RunState) -> set[int]:
        """Decide what becomes of a new version, once: the same run may come here again after a crash.

        Returns
        -------
        set of int
            The versions that its name stood for before, if it stands for others now.
        """
        name, version = model.name, model.version
        current = self.aliases.current.get(name)
        if self.rollouts.knows(name, version) or self._was(name, version, CURRENT, CANDIDATE):
            return set()
        if state.spec.private is not None:
            return self._decide_from_sums(model, state, current)
        # A first version has nothing to be staged beside; personal models differ from vehicle to vehicle by design.
        plan = None if current is None else state.spec.rollout
        if plan is None and self.lookup(state.spec.scheme).abilities.personalise is not None:
            return self.become_current(model, "published", "")
        suspect = ""
        if state.harmful is not None:
            agent = state.harmful.agent
            suspect = f"{state.harmful.in_words(agent)}; start the next run with --without {agent}"
        self.rollouts.replace(name, version, plan or GATE, f"run {model.run} brings version {version}", suspect)
        return set()

    def _decide_from_sums(self, model: StoredModel, state: RunState, current: ModelPointer | None) -> set[int]:
        """Decide about the model of a private run: no vehicle tries it by itself."""
        asked = None if state.champion is None else document_digest(state.champion)
        now = None if current is None else current.digest
        versions = {each.digest: each.version for each in self.registry.heads(model.name)}
        verdict = judged_sums(state.scores, versions, asked=asked, current=now, cohort=len(state.cohort))
        if verdict.passes:
            return self.become_current(model, "published", verdict.reason)
        if self.rollouts.live(model.name) is not None:
            self.rollouts.stop(model.name, f"run {model.run} brings version {model.version}")
        stood = self.aliases.pinned_of(model.name)
        trial = Trial(salt=model.run, below=0, champion=now or "")
        candidate = self.aliases.to_candidate(model.name, model.version, model.digest, trial, verdict.reason)
        returned = []
        if verdict.returns:
            reason = f"{verdict.reason}; version {model.version} stays a candidate"
            returned = [
                self.aliases.to_current(model.name, versions[verdict.returns], verdict.returns, "returned", reason)
            ]
        self.registry.decide([candidate, *returned])
        return stood

    def champion(self, name: str) -> ModelRecord | None:
        """Return the record of the version that a name stands for; None: it stands for none that can be read."""
        current = self.aliases.current.get(name)
        if current is None:
            return None
        try:
            return ModelRecord.load(self.registry.get(name, current.version).record)
        except (NotFoundError, DamagedError, DocumentError, VerificationError):
            return None

    def _was(self, name: str, version: int, *kinds: str) -> bool:
        return any(
            each.kind in kinds and each.body["version"] == version for each in self.registry.journal.decisions(name)
        )

    def become_current(self, model: StoredModel, cause: Cause, reason: str) -> set[int]:
        """Write down that a version is current; returns the versions that the name stood for before."""
        name, aliases = model.name, self.aliases
        stood = aliases.pinned_of(name)
        ended = self.rollouts.superseding(name, model.version)
        withdrawn = [aliases.to_none(name, "superseded")] if name in aliases.candidate else []
        current = aliases.to_current(name, model.version, model.digest, cause, reason)
        self.registry.decide([*ended, current, *withdrawn])
        self.rollouts.apply(ended)
        return stood
