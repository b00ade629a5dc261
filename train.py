"""Compose a run out of conf/ and run it: `python train.py --help`."""

import sys

from composer_rl.cli import main

if __name__ == "__main__":
    sys.exit(main())
