"""What a vehicle says about itself, and what it understands of what it hears."""
