"""Sampling and multi-turn episodes, token-exact."""
