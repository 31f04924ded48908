"""Staged rollout: a part of the fleet tries a candidate, and its reports promote it or roll it back."""
