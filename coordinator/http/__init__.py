"""HTTP of coordinator and authority: API, dashboard, access, and limits on what a request may cost.

- :mod:`.server` connections: how many, how long each may take for its header, its body, and for reading its answer
- :mod:`.guard` requests: refused by their header where possible, read up to a bound, and answered a few at a time
"""
