"""Rows before a scheme sees them: data sets, domains, units, lagged features, windows, condensed rows."""
