"""A vehicle's rows: files, database queries and windows over a live stream, read into one kind of table.

``readers`` lists the kinds of sources, and lets files as people have them be converted first; ``files``, ``database``
and ``window`` read them; ``columns`` checks cells, and ``cells`` says what they may not be; ``table`` makes rows to
learn from.
"""

from edge_agent.imports.clocks import SPLIT
from edge_agent.sources.table import Source, Table, read_source, read_table

__all__ = ["SPLIT", "Source", "Table", "read_source", "read_table"]
