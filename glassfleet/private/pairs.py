"""Who spoils the sum of a group: asked when a group's answers do not add up to what vehicles can have.

A masked answer cannot be judged, and opening masks would open rows. So each member of the group answers the number 1
once with each other member, under masks for the two alone, as in a group of two. Each pair must come to 2. Who answers
noise fits with nobody; two vehicles that do not fit with each other, but with all others, blame each other. Nothing
in it is of anybody's rows, so neither the rules of a run nor those between runs are touched.

A vehicle that answers this question truly, and others falsely, is not found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import Abilities, PrivateRuns
from glassfleet.errors import TaskError
from glassfleet.private.chain import PAIRS_SCHEME
from glassfleet.private.groups import Edition

KIND: Final = "pairs"

HEAD: Final = 2
"""Words before those of the pairs, as in all layouts: numbers of rows and of vehicles with rows, here 0."""

FALSE: Final = "false answers"
"""What the reason begins with of a vehicle that does not fit with the others."""

_MOST = 100_000


class Pairs:
    """The question, shaped like a scheme."""

    name: Final = PAIRS_SCHEME

    @staticmethod
    def layout(task: Task) -> dict[str, tuple[int, ...]]:
        """Return one word for each member of the edition; raises TaskError for a malformed task."""
        vehicles = task.body.get("vehicles")
        if type(vehicles) is not int or not 2 <= vehicles <= _MOST:
            raise TaskError("a check of pairs says how many vehicles there are")
        return {"pairs": (vehicles,)}

    @property
    def abilities(self) -> Abilities:
        """What it can do: add up."""
        return Abilities(private=PrivateRuns(self.layout))


PAIRS: Final = Pairs()


def task_of(edition: Edition) -> Task:
    """Return the question to the members of an edition."""
    body = {"group": edition.group, "vehicles": len(edition.members)}
    return Task(PAIRS_SCHEME, KIND, body, edition.roster.terms.nonce)


@dataclass(frozen=True)
class Judged:
    """What the answers show.

    Attributes
    ----------
    false : tuple of str
        Who does not fit with half of the group or more. As long as fewer than half of it lie, it is not an honest one.
    unclear : tuple of (str, str)
        Other pairs that do not fit: one of the two lies.
    """

    false: tuple[str, ...]
    unclear: tuple[tuple[str, str], ...]


def judged(edition: Edition, answers: Mapping[str, NDArray[np.int64]]) -> Judged:
    """Return who answers falsely.

    Parameters
    ----------
    edition : Edition
    answers : mapping of str to ndarray of int64, shape (HEAD + members,)
        By member; those who have not answered are left out.
    """
    place = {agent: HEAD + index for index, agent in enumerate(edition.members)}
    there = sorted(answers)
    apart = [
        (one, other)
        for one, other in combinations(there, 2)
        if (int(answers[one][place[other]]) + int(answers[other][place[one]])) % 2**64 != 2
    ]
    unfit = {agent: sum(agent in pair for pair in apart) for agent in there}
    false = {agent for agent, count in unfit.items() if 2 * count >= len(edition.members)}
    return Judged(tuple(sorted(false)), tuple(pair for pair in apart if not false & set(pair)))
