"""The import as a process of its own: ``python -m edge_agent.imports SOURCE OUT TARGET`` prints what it did as JSON.

An agent starts it for a file that needs converting: the engine's memory is gone when it ends.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edge_agent.imports.importing import ImportJob, import_files
from schemas.errors import GlassfleetError


def main() -> int:
    """Import one file; return the exit code."""
    source, out, target = sys.argv[1:4]
    try:
        report = import_files(ImportJob([Path(source)], Path(out), target=target))
    except GlassfleetError as fault:
        fields = {name: getattr(fault, name, "") for name in ("mend", "where", "tells")}
        sys.stdout.write(json.dumps({"fault": {**fields, "what": getattr(fault, "what", str(fault))}}))
        return fault.exit_code
    sys.stdout.write(json.dumps({"line": report.line(), "warnings": report.warnings}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
