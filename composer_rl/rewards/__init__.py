"""Named, weighted reward functions."""
