"""Compose, ablate and reproduce reinforcement-learning recipes for coding agents."""

__version__ = "0.1.0"
