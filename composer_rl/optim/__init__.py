"""Optimizer and learning-rate settings."""
