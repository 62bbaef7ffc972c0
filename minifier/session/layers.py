"""The layer at which the failure of a minimal case enters, found in the workers that minified it.

torch's own backends, each of which stops after a layer, need nothing but torch. So the workers of any backend can run
them. The queries are logged like all others, and a run that was interrupted does not repeat them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...backends.provenance.spec import BackendSpec
from ...store.document.case import Case
from ..oracle import tasks
from ..oracle.ablation import OWN, SAME, Ablation, AblationRow, layer_of, layers_before, result_of, wrong_fake_kernel
from ..oracle.oracle import Oracle
from ..oracle.scheduler import Budget, BudgetSpent, QueryScheduler
from ..oracle.verdict import Outcome, Verdict
from ..reducer.history import EXPLAIN

#: Queries and seconds that the layers may take.
MOST, SECONDS = 6, 60.0


def find(oracle: Oracle, case: Case, scheduler: QueryScheduler, *, reduction: int) -> Ablation | None:
    """Run ``case``, which its own backend fails on, under torch's layers up to the first that shows the failure.

    ``oracle`` is asked in fresh workers, and each layer is run through both entries to a backend. ``reduction`` is the
    id of the reduction that found ``case``. None where the budget does not suffice.
    """
    own = BackendSpec.from_json(case.backend)
    rows: list[AblationRow] = []
    try:
        with scheduler.limited(Budget(MOST, SECONDS)):
            for name, layer in layers_before(own.name):
                rows.append(_row(oracle, case, scheduler, layer_of(name, own), layer))
                if rows[-1].result == SAME:
                    break
            else:
                rows.append(AblationRow(own.name, OWN, SAME))
    except BudgetSpent:
        return None
    return Ablation.of(rows, reduction, wrong_fake_kernel(oracle.pool, case, oracle.timeout))


def _row(oracle: Oracle, case: Case, scheduler: QueryScheduler, spec: BackendSpec, layer: str) -> AblationRow:
    tried = replace(case, backend=spec.to_json())
    seen: list[Verdict] = []
    for entry in reversed(tasks.ENTRIES):  # as the script does it first
        through = replace(oracle, entry=entry)
        key = f"{scheduler.key(tried)}/{entry}"
        seen.append(scheduler.ask_once(key, EXPLAIN, partial(through.ask, tried, fresh=True)))
        if seen[-1].outcome is not Outcome.PASS:
            break
    last = seen[-1]
    said = "" if last.outcome in (Outcome.SAME, Outcome.PASS) else last.detail
    return AblationRow(spec.name, layer, result_of(last), said, round(sum(v.seconds for v in seen), 2))
