"""What is told of private runs, for people."""

from __future__ import annotations

from glassfleet.private.words import figures, left_out, protection, question


def test_protection_is_told_before_and_after_the_model_is_learned() -> None:
    assert protection({}) == ""
    assert protection({"floor": 8, "company": 3, "patience": 1}).startswith(
        "private: only sums over 8 or more vehicles"
    )
    after = protection({"floor": 8, "company": 3, "groups": 1, "editions": 2, "vehicles": 12, "rows": 900})
    assert after == (
        "private: only sums over 8 or more of its 12 vehicles were seen (1 group, 2 editions); nobody left alone, but "
        "3 or more together"
    )
    bound = {"floor": 8, "company": 3, "support": 3, "groups": 1, "editions": 1, "vehicles": 9, "rows": 90}
    assert "1 edition), none of which rests on fewer than 3 rows; nobody" in protection(bound)


def test_scores_are_told_in_the_targets_unit_with_how_many_vehicles_lose() -> None:
    scores = {
        "metric": "rmse", "rows": 90, "vehicles": 9, "candidate": 1.25, "constant": 2.0, "local": 1.5,
        "compared": {"constant": 9}, "worse": {"constant": 1}, "worse_by": {"constant": -0.01},
    }  # fmt: skip
    assert figures(scores, "dB") == (
        "RMSE over 90 test rows of 9 vehicles: 1.25 dB; each alone 1.5 dB, a constant 2 dB; worse off than with a "
        "constant: 1 of 9"
    )
    assert figures({"missing": "lost-again: v1"}) == "no scores: lost-again: v1"
    assert figures({}) == ""


def test_rounds_that_no_scheme_asks_are_told_in_words() -> None:
    assert question("keys").startswith("keys: ")
    assert question("level") == "level"


def test_who_was_left_out_is_said_in_a_sentence_each() -> None:
    agents = {
        "v2": {"reason": "company: nobody leaves a group alone"},
        "v1": {"reason": "company: an earlier run over the same rows had v9, too, and nobody leaves alone"},
        "v7": {"reason": "waits for company: it joins when 2 more new vehicles come"},
        "v3": {"reason": "deadline"},
    }
    assert left_out(agents) == [
        "as company, for this run only: v1, v2",
        "v7 waits for company: it joins when 2 more new vehicles come",
    ]
    assert left_out({}) == []
