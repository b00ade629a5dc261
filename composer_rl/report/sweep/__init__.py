"""Sweeps: jobs grouped into arms, compared with a baseline, drawn and tabulated."""
