"""What a scheme is: its halves, its messages, what it can do, how it is found, and the checks of what peers send."""
