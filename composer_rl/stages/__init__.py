"""What a run does: rl, sft, evaluate and the others."""
