"""The papers' protocols, and central references beside them."""
