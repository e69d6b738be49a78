"""`python benchmarks`: the driver; `python benchmarks --worker ...` is the process of one framework, started by it."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the folder of the package instead of the package's own

if sys.argv[1:2] == ["--worker"]:  # imports nothing of Needle, which need not be there
    from benchmarks.worker import main
else:
    from benchmarks.command import main

sys.exit(main())
