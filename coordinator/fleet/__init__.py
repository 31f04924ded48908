"""Who is there: vehicles, their arrivals, and which coordinator leads."""
