"""Whether the coordinator in this container works: exit code 0 when it has its broker, or stands by.

The standard library alone, so that it costs nothing. The address is the one that the coordinator noted.
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path


def main() -> int:
    """Ask once."""
    note = Path(os.environ.get("GLASSFLEET_STATE_DIR", "/var/lib/glassfleet")) / "api-url"
    try:
        port = urllib.parse.urlsplit(note.read_text(encoding="ascii").strip()).port
    except (OSError, ValueError):
        print(f"no API is up: {note} cannot be read")
        return 1
    # No proxy from the environment stands between a container and itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/api/health", timeout=4) as answer:
            health = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as fault:
        print(f"the API does not answer: {fault}")
        return 1
    print(health["status"])
    return 0 if health["status"] in ("ok", "stand-by") else 1


if __name__ == "__main__":
    sys.exit(main())
