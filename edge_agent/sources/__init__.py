"""A vehicle's rows: files, database queries and windows over a live stream, read into one kind of table.

``readers`` lists the kinds of sources; ``files``, ``database`` and ``window`` read them; ``cells`` knows what a cell
may be and the words for what it may not; ``table`` makes rows to learn from; ``check`` finds all faults at once.
"""

from edge_agent.sources.cells import SPLIT
from edge_agent.sources.table import Source, Table, read_source, read_table

__all__ = ["SPLIT", "Source", "Table", "read_source", "read_table"]
