"""`python benchmarks` is `python benchmarks/run.py`."""

import sys

from run import main

sys.exit(main())
