"""What other systems do not have is not needed: see windows_like.py."""

import subprocess
import sys
from pathlib import Path


def test_nothing_needs_what_windows_does_not_have(tmp_path):
    program = Path(__file__).with_name("windows_like.py")
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.endswith("works\n"), done.stdout + done.stderr
    assert "use WSL" in done.stdout + done.stderr
