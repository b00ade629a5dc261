"""Hint generators for error turns."""
