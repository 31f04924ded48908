"""Published models: versions, names and what they point to, central references, signatures."""
