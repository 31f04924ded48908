"""Rows before a scheme sees them: data sets, domains, units, windows, condensed rows."""
