"""The tests. A package, so that one of this name that comes with a library (kuksa-client) is not taken for it."""
