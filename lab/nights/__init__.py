"""`python -m lab.nights`: the gate over simulated nights, and the power of its test; `.drift`: how soon drift is found."""
