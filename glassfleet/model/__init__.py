"""What a model says: rules in words, explanations, intervals, what its rules forecast, and plain tables."""
