"""One thing that was looked at, and how a check's exception becomes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from schemas.errors import GlassfleetError

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes
    ----------
    check : str
    level : "ok", "warning" or "wrong"
        Only ``wrong`` makes the exit code 1.
    says : str
    fix : str
        What to do about it; empty when there is nothing to do.
    """

    check: str
    level: Level
    says: str
    fix: str = ""

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "check": self.check,
            "level": self.level,
            "ok": self.level != "wrong",
            "says": self.says,
            **({"fix": self.fix} if self.fix else {}),
        }


def fine(check: str, says: str) -> Finding:
    """Return that all is well."""
    return Finding(check, "ok", says)


def warning(check: str, says: str, fix: str = "") -> Finding:
    """Return something that will, or may, matter."""
    return Finding(check, "warning", says, fix)


def wrong(check: str, says: str, fix: str = "") -> Finding:
    """Return a fault."""
    return Finding(check, "wrong", says, fix)


def looked(name: str, check: Callable[[], Finding | Iterable[Finding]]) -> list[Finding]:
    """Run a check; a fault that it raises is its finding. The text of our errors names the way out."""
    try:
        result = check()
        return [result] if isinstance(result, Finding) else list(result)
    except GlassfleetError as fault:
        return [wrong(name, str(fault))]
    except ModuleNotFoundError as fault:
        return [warning(name, f"not looked at: the package {fault.name} is not installed")]


def size(number: float) -> str:
    """Return bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
