"""Structlog without rich, for services; to be imported before anything else imports structlog.

Structlog imports rich for its pretty tracebacks when rich happens to be installed. Services never print those, and
every start would cost 70 ms and 6 MB for them (measured).
"""

import sys

if "rich" not in sys.modules and "structlog" not in sys.modules:
    # None makes that optional import fail; taken back at once, so that a console in the same process can use rich.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]
else:
    import structlog

__all__ = ["structlog"]
