"""`python -m lab.nights`: the gate over simulated nights, with and without drift, and the power of its test."""
