"""Which tasks the next rollout samples."""
