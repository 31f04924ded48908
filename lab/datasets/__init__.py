"""``glassfleet datasets``: fetches, checks and reads the papers' data sets."""
