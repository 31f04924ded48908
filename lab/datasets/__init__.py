"""``glassfleet lab datasets``: fetches, checks and reads the papers' data sets."""
