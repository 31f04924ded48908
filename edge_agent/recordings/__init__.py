"""Recordings of buses and measuring systems: each kind is read into signals with times of their own."""
