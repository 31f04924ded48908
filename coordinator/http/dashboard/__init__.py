"""The dashboard: pages for people over the running coordinator, and explanations of its models as JSON.

Theory. Pages are drawn by the server - HTML and SVG, readable without any script - from the same frozen values that the
API shows. Scripts only save reloads: live fragments, branches that open in place, rows read from a file. Everything
comes from this package, so the pages work where there is no Internet.

- :mod:`.pages` the addresses; :mod:`.show`, :mod:`.scores` what they say; :mod:`glassfleet.export.svg` the pictures
- :mod:`.live` server-sent events; :mod:`.explain_api` explanations as JSON; :mod:`.library` models in memory
- :mod:`.security` headers, sessions, forms
"""

from coordinator.http.dashboard.live import Hub
from coordinator.http.dashboard.pages import Dashboard

__all__ = ["Dashboard", "Hub"]
