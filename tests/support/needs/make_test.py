"""What ``make test`` runs: the checks, beside them every test but the slow ones; the last line says how both ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

# In the order of the folders, acceptance first: sorted by number of tests, files with few long ones would be last.
TESTS = ["-m", "not slow", "--dist", "loadfile", "--no-loadscope-reorder"]


class Closing:
    """How the tests ended, in a few words."""

    summary = "did not run"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Count them, of all processes."""
        from tests.support.needs.plugin import LeftOut  # not before pytest, which rewrites what it asserts

        stats = terminalreporter.stats
        counts = [(len(stats.get(outcome, ())), outcome) for outcome in ("failed", "error", "passed")]
        left = LeftOut(stats)
        absent = [f"{count} for {name}" for name, count in sorted(left.absent.items())]
        absent += [f"{left.others.total()} for other reasons (above)"] * bool(left.others)
        self.summary = ", ".join(f"{count} {outcome}" for count, outcome in counts if count) or "none ran"
        self.summary += f"; left out: {', '.join([*absent, 'the slow ones (make test-slow)'])}"


def main() -> int:
    """Run both, and return the exit code."""
    print(
        "Checks (ruff, mypy, import-linter), and beside them every test but the slow ones: "
        "about five minutes on two cores.",
        flush=True,
    )
    closing = Closing()
    # Beside each other: mypy is one process that takes most of a minute.
    with tempfile.TemporaryFile("w+") as log:
        checks = subprocess.Popen(["make", "--no-print-directory", "check"], stdout=log, stderr=subprocess.STDOUT)
        tests = pytest.main([*TESTS, *sys.argv[1:]], plugins=[closing])
        failed = checks.wait() != 0
        if failed:
            log.seek(0)
            print(f"\nmake check says\n\n{log.read()}")
    print(
        f"Checks {'FAILED (make check)' if failed else 'passed'}. Tests{' FAILED' if tests else ''}: {closing.summary}."
    )
    return 1 if failed else int(tests)


if __name__ == "__main__":
    sys.exit(main())
