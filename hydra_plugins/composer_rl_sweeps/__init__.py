"""Hydra looks for plugins in the namespace package hydra_plugins; what they do is in composer_rl/sweeps."""
