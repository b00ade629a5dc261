"""Policy objectives: presets over TRL GRPOConfig."""
