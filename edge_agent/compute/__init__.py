"""Answers under a budget of time and memory, in a process of their own."""
