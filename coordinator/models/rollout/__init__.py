"""Staged rollout: part of the fleet scores a candidate, and its reports promote it or roll it back."""
