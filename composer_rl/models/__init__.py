"""Policies: the embedded tiny model and Hugging Face causal language models."""
