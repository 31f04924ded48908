"""Forecasts on the vehicle: the last good model on live measurements, each forecast explained and logged.

``features`` makes the model's inputs of rows, ``model`` follows the model that the agent keeps, ``serve`` puts them
together once a second, ``log`` remembers why, and ``publish`` tells others.
"""
