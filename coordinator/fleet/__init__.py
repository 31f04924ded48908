"""Who is there: known vehicles, their births and deaths, their scores, and which coordinator leads."""
