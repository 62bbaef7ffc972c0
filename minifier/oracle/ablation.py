"""`minify ablate`: run one capture under other backends to find the layer at which its failure enters.

A graph passes through Dynamo, AOTAutograd and decompositions before it reaches the backend. torch has a backend that
stops after each of these layers. The first of them that fails names the layer. If all three pass, the failure is the
backend's own. The minimal case is used if there is one. Each backend gets its own workers: it may crash or hang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from ...backends.provenance.access import Access
from ...backends.provenance.spec import BackendSpec
from ...backends.running.compiler_caches import CompilerCaches
from ...backends.running.confinement import Confinement, wanted
from ...store import codec
from ...store.document.case import Blobs, Case, Json
from ...store.errors import StoreError
from ...store.index import Index, queue
from ...store.matching import FailureMatcher
from ..consent import NOT_TRUSTED, AgreedCase, Confirm, Tell, may_run, refuse, silent
from ..sandbox.launcher import BackendImportError, SandboxError
from ..sandbox.pool import Ended, Pool, Workers
from . import tasks
from .observation import Observation, Seen, of_reply
from .verdict import Outcome, Verdict

#: The backends of torch that stop after a layer, and that layer.
LAYERS = (
    ("eager", "Dynamo"),
    ("aot_eager", "AOTAutograd"),
    ("aot_eager_decomp_partition", "decompositions and partitioner"),
)
#: The kind of the artifact.
ARTIFACT = queue.ABLATION
#: Results of a backend, compared with the captured failure.
SAME, OTHER, PASSES, CANNOT = "same failure", "another failure", "passes", "cannot run"
#: The layer of the backend of the capture.
OWN = "the backend"
#: The answer where eager raises without any backend.
NOWHERE = "nowhere: eager mode fails, too, without a backend"
#: The result of a backend that failed where eager raises, too, without any backend.
REFUSED = "eager refuses it"


@dataclass(frozen=True, slots=True)
class AblationRow:
    """The case under one backend. ``result`` is one of ``SAME``, ``OTHER``, ``PASSES``, ``CANNOT`` and
    ``REFUSED``."""

    backend: str
    layer: str
    result: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ablation:
    """The rows, torch's layers first, and the layer at which the failure enters.

    ``torch`` is its version, ``reduction`` the one whose result was run: 0 for the captured graph.
    """

    rows: tuple[AblationRow, ...]
    enters: str
    torch: str = ""
    reduction: int = 0

    @classmethod
    def of(cls, rows: Sequence[AblationRow], reduction: int, wrong: str = "") -> Ablation:
        """The ablation with these ``rows``, with the torch that is installed.

        ``wrong`` names an operator whose fake kernel is wrong. Layers of torch and backends believe it.
        """
        enters = _enters(rows)
        if wrong and any(row.result == SAME for row in rows if row.layer) and enters != NOWHERE:
            enters = f"the fake kernel of {wrong}"
        return cls(tuple(rows), enters, metadata.version("torch"), reduction)

    @property
    def shows(self) -> bool:
        """True if the failure showed at all where the ablation was made. If not, no row says anything about it."""
        return any(row.result == SAME for row in self.rows if row.layer)

    @property
    def passing(self) -> tuple[str, ...]:
        """The backends of torch that stop after a layer, and pass."""
        return tuple(row.backend for row in self.rows if row.result == PASSES and row.layer not in ("", OWN))

    def to_json(self) -> Json:
        return codec.dump(self)

    @classmethod
    def from_json(cls, doc: Any) -> Ablation:
        """Inverse of `to_json`. Raises `StoreError` on anything else."""
        try:
            return codec.load(doc, cls)
        except ValueError as error:
            raise StoreError(f"an ablation in the file cannot be read: {error}") from error


def ablate(
    db: str,
    id: int,
    *,
    backends: Sequence[str] = (),
    everything: bool = False,
    timeout: float = 300.0,
    trust: bool = False,
    sandbox: bool = False,
    confirm: Confirm = refuse,
    tell: Tell = silent,
    done: Callable[[AblationRow], None] = lambda row: None,
) -> Ablation:
    """Run capture ``id`` under torch's layers and its own backend, up to the first that fails, and under ``backends``.

    With ``everything`` under all layers, and under every other backend that is installed where no ``backends`` are
    named. The answer is stored, and the issue report shows it. ``timeout`` is in seconds, for one run.

    Raises `StoreError`, and `NoConfinement` where a ``sandbox`` cannot be had.
    """
    confinement = wanted(sandbox)
    with Index.open(db, readonly=True) as index:
        minimal = index.stored(id).minimal()
        agreed = may_run(id, minimal, trust=trust, confirm=confirm, sandbox=sandbox, tell=tell)
        if agreed is None:
            raise StoreError(f"capture {id} was {NOT_TRUSTED}")
        found = layers(
            index, agreed, backends=backends, everything=everything, timeout=timeout, confinement=confinement,
            done=done,
        )  # fmt: skip
    with Index.open(db) as index:
        index.artifacts.save(id, ARTIFACT, found.to_json())
    return found


def layers(
    index: Index,
    agreed: AgreedCase,
    *,
    backends: Sequence[str] = (),
    everything: bool = False,
    timeout: float = 300.0,
    confinement: Confinement | None = None,
    done: Callable[[AblationRow], None] = lambda row: None,
) -> Ablation:
    """`ablate` of an agreed case, without storing the answer."""
    failure, case = index.captures.get(agreed.id).failure, agreed.case
    if failure is None:
        raise StoreError(f"capture {agreed.id} has no failure to compare with")
    blobs = index.blobs.view(case.storages)
    own = BackendSpec.from_json(case.backend)
    specs = [(named(name, own), layer) for name, layer in layers_before(own.name)]
    specs.append((own, OWN))
    names = dict.fromkeys(backends or (others(own.name) if everything else ()))
    specs += [(named(name, own), "") for name in names if name not in {s.name for s, _ in specs}]
    rows: list[AblationRow] = []
    with CompilerCaches() as caches:
        for spec, layer in specs:
            known = any(r.result in (SAME, REFUSED) for r in rows)
            if known and layer and not everything and spec.name not in names:
                continue
            tried = replace(case, backend=spec.to_json())
            row = _row(
                spec, layer, tried, blobs, FailureMatcher((failure,)), timeout, confinement, caches, agreed.access
            )  # fmt: skip
            rows.append(row)
            done(row)
        try:
            pooled = caches if confinement is None else None
            with Pool(
                case.backend, case.imports, confinement=confinement, caches=pooled, access=agreed.access
            ) as pool:  # fmt: skip
                pool.scratch.put(blobs)
                wrong = wrong_fake_kernel(pool, case, timeout)
        except (BackendImportError, SandboxError):
            wrong = ""
    last = index.reductions.last(agreed.id)
    return Ablation.of(rows, 0 if last is None else last.id, wrong)


def wrong_fake_kernel(pool: Workers, case: Case, timeout: float) -> str:
    """The operator of another library in ``case`` whose fake kernel is wrong, as a worker of ``pool`` finds it."""
    if all(_is_of_torch(node.target) for node in case.graph.compute):
        return ""
    reply = pool.submit("fakes", tasks.record_argument(case), timeout=timeout).result()
    return str(reply.result["wrong"]) if reply.ended is Ended.DONE else ""


def _is_of_torch(target: Any) -> bool:
    """Whether a target is a method, or an operator in a namespace of torch's core."""
    named = str(next(iter(target.values()), "")) if isinstance(target, dict) else ""
    return "::" not in named or named.partition("::")[0] in ("aten", "prims", "prim")


def layers_before(own: str) -> tuple[tuple[str, str], ...]:
    """The backends of torch that stop before the backend ``own`` does, each with its layer."""
    names = [name for name, _ in LAYERS]
    return LAYERS[: names.index(own)] if own in names else LAYERS


def layer_of(name: str, own: BackendSpec) -> BackendSpec:
    """The backend of torch that stops after a layer, with the same ``dynamic`` and environment as ``own``."""
    return BackendSpec(name, "registered", name, dynamic=own.dynamic, environment=own.environment)


def result_of(verdict: Verdict) -> str:
    """The result of a backend from the oracle's answer."""
    if verdict.outcome is Outcome.INVALID:
        return REFUSED if verdict.detail.startswith("eager: ") else CANNOT
    known = {Outcome.SAME: SAME, Outcome.PASS: PASSES, Outcome.OTHER: OTHER, Outcome.CRASH: OTHER}
    return known.get(verdict.outcome, CANNOT)


def named(name: str, own: BackendSpec) -> BackendSpec:
    """The backend registered as ``name``, with the same ``dynamic`` and environment. Raises `StoreError`."""
    from ...backends.provenance.origin import spec_of

    spec = spec_of(name)
    if spec.problem:
        raise StoreError(f"{spec.problem}; `minify backends` lists those that are there.")
    return replace(spec, dynamic=own.dynamic, environment={**spec.environment, **own.environment})


def others(own: str) -> list[str]:
    """Backends installed here that compile: none that only debug, and none that lacks its package."""
    from ...backends.adapters import adapters
    from ...backends.provenance.catalog import listing

    aside = {own, *(name for name, _ in LAYERS), *(name for a in adapters().values() for name in a.not_tried)}
    usual = [row for row in listing() if not {"debug", "experimental"} & set(row["tags"]) and not row["needs"]]
    return [row["name"] for row in usual if row["name"] not in aside and row["recreatable"]]


def stored(index: Index, id: int) -> Ablation | None:
    """Return the ablation of capture ``id``, or None if it is missing or belongs to an earlier reduction."""
    kept = index.artifacts.get(id, ARTIFACT)
    if kept is None:
        return None
    found, last = Ablation.from_json(kept), index.reductions.last(id)
    return found if found.reduction in (0, 0 if last is None else last.id) else None


def _row(
    spec: BackendSpec,
    layer: str,
    case: Case,
    blobs: Blobs,
    matcher: FailureMatcher,
    timeout: float,
    confinement: Confinement | None,
    caches: CompilerCaches,
    access: Access,
) -> AblationRow:
    seen: list[tuple[Observation, float]] = []
    try:
        own = caches if confinement is None else None
        with Pool(
            case.backend, case.imports, confinement=confinement, caches=own, access=access,
        ) as pool:  # fmt: skip
            pool.scratch.put(blobs)
            for entry in reversed(tasks.ENTRIES):  # as the script does it first
                reply = pool.submit("observe", tasks.observe_argument(case, entry), timeout=timeout).result()
                seen.append((of_reply(reply), reply.seconds))
                if _matches(seen[-1][0], matcher):
                    break
    except (BackendImportError, SandboxError) as error:
        return AblationRow(spec.name, layer, CANNOT, str(error).strip().splitlines()[0])
    order = {Seen.FAILURE: 0, Seen.PASS: 1, Seen.INVALID: 2, Seen.INFRA: 3}
    observation, seconds = min(seen, key=lambda pair: (not _matches(pair[0], matcher), order[pair[0].seen]))
    if observation.failure is None:
        result = PASSES if observation.seen is Seen.PASS else REFUSED if observation.refused else CANNOT
        return AblationRow(spec.name, layer, result, observation.detail, round(seconds, 2))
    result = SAME if _matches(observation, matcher) else OTHER
    return AblationRow(spec.name, layer, result, observation.failure.headline(), round(seconds, 2))


def _matches(observation: Observation, matcher: FailureMatcher) -> bool:
    return observation.failure is not None and matcher.shows(observation.failure)


def _enters(rows: Sequence[AblationRow]) -> str:
    """The first layer of torch that fails, the backend where none does. None if eager fails without them."""
    if any(row.result == REFUSED for row in rows):
        return NOWHERE
    for row in rows:
        if row.layer and row.result == SAME:
            return row.layer if row.layer != OWN else f"the backend {row.backend}"
        if row.layer and row.result != PASSES:
            how = "fails in another way" if row.result == OTHER else "cannot run"
            return f"no layer for certain: {row.backend} {how}"
    return "nowhere: it does not show here now"
