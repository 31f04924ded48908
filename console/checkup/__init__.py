"""The checks of ``glassfleet doctor``, one module for each place; each check returns findings."""
