"""Exact federated learning of explainable models: no I/O, no clock, no MQTT.

This is the package that outsiders import. ``glassfleet.simulation`` trains local, central and in-process federated
models; ``glassfleet.contract.catalogue`` finds the schemes; ``glassfleet.contract.scheme`` is the contract a new scheme
fulfils.
"""
