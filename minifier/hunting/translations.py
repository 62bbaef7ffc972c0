"""Make the table of translations of ``fxminify_ort``: ``python -m fxminify.minifier.hunting.translations``.

Operators of a suite run in workers under `fxminify.backends.shipped.onnxrt.learning`, which checks the translation of
each call against eager. It takes hours of one processor, and goes on where it was interrupted. Without ``--shipped``
the table is kept for what is installed, in this user's cache, and the backend reads it from then on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...backends.provenance.spec import BackendSpec
from ...backends.shipped.onnxrt import trust
from ...backends.shipped.onnxrt.options import require
from ...store.document import names_cache
from ..sandbox.pool import Pool
from .hunt import hunt, listed
from .log import ProgramLog
from .programs import ProgramResult, Selection

_DTYPES = "float32,float64,float16,bfloat16,int64,int32,uint8,bool"
_LEARN = {"import": ["fxminify.backends.shipped.onnxrt.learning", "learn"]}


def main() -> None:
    """Run the operators, and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m fxminify.minifier.hunting.translations", description=(__doc__ or "").split(":")[0] + "."
    )
    parser.add_argument("folder", type=Path, help="where findings are kept, and looked for after an interruption")
    parser.add_argument("--dtypes", default=_DTYPES)
    parser.add_argument("--names", default="*", help="patterns of operators, with commas")
    parser.add_argument("--calls", type=int, default=5, help="samples of each operator (default 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--static", action="store_true", help="static shapes only")
    parser.add_argument("--jobs", "-j", type=int, default=1)
    parser.add_argument("--collect", action="store_true", help="run nothing, and write the table of what is known")
    parser.add_argument("--shipped", action="store_true", help="write the package's own table")
    args = parser.parse_args()
    require()
    args.folder.mkdir(parents=True, exist_ok=True)
    findings = args.folder / "findings.jsonl"
    if not args.collect:
        wanted = Selection(
            tuple(args.names.split(",")), tuple(args.dtypes.split(",")),
            dynamic=(False,) if args.static else (False, True), seed=args.seed, calls=args.calls,
        )  # fmt: skip
        _run(args.folder / "programs.jsonl", findings, wanted, args.jobs)
    from ...backends.shipped.onnxrt.learning import collect

    table = collect([findings])
    path = trust.SHIPPED if args.shipped else trust.cached()
    if path is None:
        parser.exit(1, "there is no folder for the table: set XDG_CACHE_HOME\n")
    if args.shipped:
        path.write_text(table.to_json())
    else:
        names_cache.write(path, table.to_json().encode())
    wrong = sum(map(bool, table.known.values()))
    print(f"{path}: {len(table.known) - wrong} patterns are right, {wrong} are not")


def _run(programs: Path, findings: Path, wanted: Selection, jobs: int) -> None:
    options = {"dict": [["file", str(findings.resolve())]]}
    backend = BackendSpec(name="learn", how="attribute", target=_LEARN, options=options).to_json()
    log, seen = ProgramLog(programs), 0

    def done(result: ProgramResult) -> None:
        nonlocal seen
        seen += 1
        if result.problem:
            print(f"{result.program.text()}: {result.problem}", file=sys.stderr)
        if seen % 100 == 0:
            print(f"{seen} of {left} programs", file=sys.stderr, flush=True)

    with Pool(backend, jobs=jobs) as pool:
        chosen = listed(pool, "ops", wanted)
        left = sum(program not in log.results for program in chosen)
        hunt(pool, backend, chosen, log, done=done)


if __name__ == "__main__":
    main()
