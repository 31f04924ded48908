"""The papers' datasets: where they live, what they look like, how they are read: ``glassfleet datasets``."""
