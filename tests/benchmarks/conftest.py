"""The benchmark's files import each other as scripts do: by the folder they lie in."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
