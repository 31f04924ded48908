"""What ``glassfleet run`` does beside asking the coordinator."""
