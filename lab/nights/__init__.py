"""`python -m lab.nights`: the gate over simulated nights, the power of its test; `.drift`: how soon drift is found."""
