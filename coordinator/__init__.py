"""The cloud service: opens rounds, counts answers, keeps the journal, publishes models, serves HTTP."""

import sys

# Structlog imports rich for its pretty tracebacks when rich happens to be installed. A service never prints those, and
# every start would cost 70 ms and 6 MB for them (measured). None makes that optional import fail; it is taken back at
# once, so that a console in the same process can use rich.
if "rich" not in sys.modules and "structlog" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]
