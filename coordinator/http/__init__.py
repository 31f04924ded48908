"""HTTP for both servers, the coordinator's and the authority's: what a peer may cost before anybody knows who it is.

- :mod:`.server` connections: how many, how long each may take for its header, its body, and for reading its answer
- :mod:`.guard` requests: refused by their header where possible, read up to a bound, and answered a few at a time
"""
