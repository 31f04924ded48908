"""Files as loggers and spreadsheets write them become one table: judged, planned, converted, counted.

``judge`` looks at the text, ``plan`` says what was decided, ``engine`` (DuckDB, in the import process alone) does it.
"""
