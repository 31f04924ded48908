"""Long answers and scores: computed in a process of their own, under a budget of time and memory."""
