"""The command line: one module per command, one folder per kind of user. It decides nothing by itself."""
