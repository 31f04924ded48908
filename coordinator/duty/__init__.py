"""For whoever is on duty: who needs somebody and why, whom to tell, what changed this week."""
