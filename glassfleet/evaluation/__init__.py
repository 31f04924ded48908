"""How good a model is: scores on test rows, paired comparisons, drift, and which vehicle's rows harm it."""
