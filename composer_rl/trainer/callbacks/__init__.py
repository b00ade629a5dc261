"""Callbacks of the trainer: metrics to trackers, held-out evaluation, resumable state, rollouts to read."""
