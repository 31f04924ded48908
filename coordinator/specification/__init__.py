"""What an operator asks for: a run, and the rollout of its model."""
