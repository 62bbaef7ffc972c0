"""Tests import the modules of the project."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
