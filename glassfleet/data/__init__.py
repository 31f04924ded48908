"""Rows, domains, and what is made of them before a scheme sees them."""
