"""Schemes that the papers compare with; `glassfleet.contract.catalogue` finds them by their entry points, as yours."""
