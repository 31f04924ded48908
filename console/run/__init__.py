"""Commands about runs: start, follow, list, cancel."""
