"""What `stage=evaluate` can measure: one file an evaluation."""
