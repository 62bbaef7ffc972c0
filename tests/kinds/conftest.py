"""Programs and the corpus that tests of graph kinds use stand beside the tests, or among those of the store."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "programs"), str(HERE.parent / "store")]
