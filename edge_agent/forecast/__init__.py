"""Forecasts on the vehicle: the last good model on live measurements, each forecast explained and logged.

``source`` brings samples, ``features`` makes the model's inputs of them, ``model`` follows the model that the agent
keeps, ``serve`` puts them together once a second, and ``log`` remembers why.
"""
