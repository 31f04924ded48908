"""A growing tree is told as data, and as lines that say the same."""

from __future__ import annotations

from glassfleet.outline import MAX_LINES, OutlineNode, outlined


def test_outline_and_lines_say_the_same_when_a_tree_grows() -> None:
    told = outlined([OutlineNode(0), OutlineNode(1, "a", "Low", open=True), OutlineNode(1, "a", "High")], 3)
    assert told["lines"] == ["everything", "  a is Low ?", "  a is High"]
    assert told["more"] == 0
    assert told["outline"] == [
        {"depth": 0, "feature": "", "term": "", "open": False},
        {"depth": 1, "feature": "a", "term": "Low", "open": True},
        {"depth": 1, "feature": "a", "term": "High", "open": False},
    ]


def test_outline_counts_the_nodes_that_it_leaves_out_when_there_are_many() -> None:
    for size, shown in ((MAX_LINES, MAX_LINES), (MAX_LINES + 1, MAX_LINES - 1)):
        told = outlined((OutlineNode(bool(number), "a", str(number)) for number in range(size)), size)
        assert (len(told["outline"]), told["more"], len(told["lines"])) == (shown, size - shown, MAX_LINES)
    assert told["lines"][-1] == "... 2 more"
