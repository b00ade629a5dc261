"""Environments and grading."""
