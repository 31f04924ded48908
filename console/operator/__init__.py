"""Commands for an operator: who needs somebody, runs and their schedules, models and their rollouts."""
