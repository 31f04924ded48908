"""Exact federated learning of explainable models: no I/O, no clock, no MQTT.

This is the package that outsiders import. ``glassfleet.local`` trains local, central and in-process federated models;
``glassfleet.catalogue`` finds the schemes; ``glassfleet.scheme`` is the contract a new scheme fulfils.
"""
