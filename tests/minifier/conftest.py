"""Makes the modules beside the tests importable: what they share, and backends that workers import as well."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "failures")]
