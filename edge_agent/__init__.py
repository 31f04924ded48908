"""The process on a vehicle: reads its rows, answers rounds, scores and serves models."""

import os
import sys

# Before numpy is imported: an agent shares its processor with the vehicle's own work, and OpenBLAS would reserve memory
# for a thread per core. Whoever wants more sets the variable.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Structlog imports rich for its pretty tracebacks when rich happens to be installed. An agent never prints those, and
# every start would cost 70 ms and 6 MB for them (measured). None in sys.modules makes that optional import fail; it is
# taken back at once, so that a console in the same process can use rich.
if "rich" not in sys.modules and "structlog" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog as _structlog  # noqa: F401 - imported for its place in sys.modules

    del sys.modules["rich"]
