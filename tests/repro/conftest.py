"""Modules that these tests share, and the hostile documents of the store's tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [p for p in (str(HERE), str(HERE.parent / "store")) if p not in sys.path]
