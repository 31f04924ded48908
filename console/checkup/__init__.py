"""What ``glassfleet doctor`` looks at, one module a place; each check returns findings."""
