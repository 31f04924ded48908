"""Versions of models: registered, tried, promoted, signed again."""
