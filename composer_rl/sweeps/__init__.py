"""Sweeps: which jobs, one process a job, what became of each. Torch-free."""
