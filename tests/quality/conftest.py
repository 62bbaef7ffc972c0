"""Hand-made cases and oracles are shared with the tests of the minifier."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "minifier"))
