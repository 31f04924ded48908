"""How long files and recordings take to read, beside the libraries alone."""
