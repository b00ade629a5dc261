"""The process that forks the processes which run model-written code.

Everything here uses the standard library alone and is executed by path (`bootstrap.py`) in an interpreter of its
own, so that a fork of it is small: neither composer_rl, nor site-packages, nor the parent's memory is in it. The
parent's side is `composer_rl/sandboxes/worker.py`; the two share `frames.py`.
"""
