"""The GRPO trainer with loss channels, its callbacks and checkpoints."""
