"""`minify report --bundle`: all files that a bug report about one capture needs, in one zip.

The zip has the same bytes in every run with one installation: its entries are sorted and have a fixed time. A manifest
has the sha256 of each file and the result of its verification. The files are listed before the zip is written.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

from ... import __version__
from ...backends.provenance.spec import BackendSpec
from ...backends.running.confinement import wanted
from ...repro_templates.anonymous import anonymous
from ...repro_templates.formats import OURS, find
from ...repro_templates.formats import formats as every_format
from ...repro_templates.processes import Processes
from ...repro_templates.report.phrases import one_line, title
from ...repro_templates.source.inputs import SIDE_FILE
from ...store.errors import StoreError
from ...store.index import Index
from ...store.privacy import private_json
from ..consent import Tell, silent
from . import script_header
from .export import ExportRequest, export, prepared
from .gathering import gather
from .report import REPORT, published

#: GitHub takes attachments of at most 25 MB.
MOST_BYTES = 24 << 20
#: GitHub takes issues of at most that many characters.
MOST_CHARACTERS = 65_536
MANIFEST = "manifest.json"
_SCRIPT = ExportRequest()
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a bundle, as the manifest lists it. ``verified`` of ``runs`` fresh processes showed the failure
    with it.

    A file that is not run has no runs. ``tentative`` is the reason why a runnable file was not run.
    """

    name: str
    what: str
    bytes: int
    sha256: str
    verified: int = 0
    runs: int = 0
    tentative: str = ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of a bundle with their content, and what the manifest says of each."""

    entries: tuple[Entry, ...]
    contents: Mapping[str, bytes]
    about: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        return {"fxminify": __version__, **self.about, "files": [asdict(entry) for entry in self.entries]}

    def manifest(self) -> bytes:
        return (json.dumps(self.document(), indent=2, sort_keys=True) + "\n").encode()

    def lines(self) -> list[str]:
        """Return a line about each file, for the person who is about to publish them."""
        rows = [
            (
                e.name,
                e.bytes,
                e.what + (f", {e.verified} of {e.runs} runs" if e.runs else ", tentative" if e.tentative else ""),
            )
            for e in self.entries
        ]
        rows.append((MANIFEST, len(self.manifest()), "names, sizes and sha256 of these files"))
        width = max(len(name) for name, _, _ in rows)
        left_out = [f"{name}: left out: {reason}" for name, reason in self.about.get("left_out", {}).items()]
        return [f"{name:{width}}  {size:>9,} bytes  {what}" for name, size, what in rows] + left_out


def collect(
    db: str,
    capture_id: int,
    request: ExportRequest = _SCRIPT,
    *,
    formats: Sequence[str] | None = None,
    sandbox: bool = False,
    tell: Tell = silent,
    **options: Any,
) -> Bundle:
    """Collect capture ``capture_id`` in these formats, by default in all formats, with the files beside them.

    ``options`` are the options of `export`, ``sandbox`` confines all that is run, ``tell`` gets each sentence once.
    A format of another package that cannot be made is left out, which ``tell`` reports. With all formats
    comes the report of the capture, unless it is renamed. Raises `StoreError` without a verified script, and for a
    bundle larger than `MOST_BYTES`.
    """
    entries: list[Entry] = []
    contents: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    told: set[str] = set()

    def once(sentence: str) -> None:
        if sentence not in told:
            told.add(sentence)
            tell(sentence)

    with Processes(wanted(sandbox)) as processes:
        for format in every_format() if formats is None else formats:
            try:
                asked = replace(request, format=format)
                made = export(db, capture_id, asked, processes=processes, sandbox=sandbox, tell=once, **options)
            except StoreError as error:
                if format in OURS:
                    raise
                left_out[format] = str(error)
                continue
            content = made.text.encode()
            verified, runs = (made.info["verified"], made.info["runs"]) if find(format).run else (0, 0)
            name = find(format).file
            contents[name] = content
            entries.append(_entry(name, f"the {format}", content, verified, runs, made.tentative))
            for name, data in made.files.items():
                if name not in contents:
                    contents[name] = data
                    what = "values of tensors, as captured" if name == SIDE_FILE else "the script"
                    entries.append(_entry(name, what, data))
    with Index.open(db, readonly=True) as index:
        capture = index.captures.get(capture_id)
        found = None if formats is not None or request.rename else gather(index, capture_id)
    if request.rename and formats is None:
        left_out[REPORT] = "it has the names of the program"
    if found is not None:
        contents[REPORT] = (json.dumps(private_json(published(found).to_json()), indent=1) + "\n").encode()
        entries.append(_entry(REPORT, "the report", contents[REPORT]))
    total = sum(map(len, contents.values()))
    if total > MOST_BYTES:
        largest = max(contents, key=lambda name: len(contents[name]))
        raise StoreError(
            f"the bundle would have {total:,} bytes, at most {MOST_BYTES:,} can be attached; "
            f"the largest file is {largest} with {len(contents[largest]):,}"
        )
    about: dict[str, Any] = {"left_out": left_out} if left_out else {}
    about |= {
        "capture": {
            "backend": capture.backend, "kind": capture.kind, "phase": capture.phase, "signature": capture.signature,
            "nodes_before": capture.nodes_before, "nodes_after": capture.nodes_after,
        }
    }  # fmt: skip
    return Bundle(tuple(entries), contents, about)


def zipped(bundle: Bundle) -> bytes:
    """The bundle as a zip: the same bytes for the same files."""
    sink = io.BytesIO()
    files = [(entry.name, bundle.contents[entry.name]) for entry in bundle.entries]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in [*files, (MANIFEST, bundle.manifest())]:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type, info.external_attr, info.create_system = zipfile.ZIP_DEFLATED, _MODE, 3
            archive.writestr(info, content)
    return sink.getvalue()


def _entry(name: str, what: str, content: bytes, verified: int = 0, runs: int = 0, tentative: str = "") -> Entry:
    return Entry(name, what, len(content), hashlib.sha256(content).hexdigest(), verified, runs, tentative)


def command(index: Index, capture_id: int, request: ExportRequest = _SCRIPT) -> str:
    """The command that files the issue with GitHub's own client, exactly as it can be typed."""
    text = prepared(index, capture_id, replace(request, format="issue")).draw().text
    if len(text) > MOST_CHARACTERS:
        raise StoreError(f"the issue has {len(text):,} characters, GitHub takes {MOST_CHARACTERS:,}: attach a --bundle")
    capture = index.captures.get(capture_id)
    case = index.best(capture) or index.captures.case(capture_id)
    kept = script_header.stored(index, capture)
    failure = kept.failure if kept is not None else capture.failure
    spec = BackendSpec.from_json(case.backend)
    if request.rename and kept is not None:
        case, kept = anonymous(case, kept)
        failure = kept.failure
    headline = title(case, failure) if failure is not None else f"[{capture.backend}] {capture.headline}"
    name = f"./{index.name}" if index.name.startswith("-") else index.name
    made = ["minify", "repro", name, str(capture_id), "--format", "issue", *(["--rename"] if request.rename else [])]
    filed = ["gh", "issue", "create", "--repo", repository(spec), "--title", one_line(headline, 140)]
    return f"{shlex.join(made)} | {shlex.join([*filed, '--body-file', '-'])}"


def repository(spec: BackendSpec) -> str:
    """Return the repository for issues of the backend, as ``OWNER/NAME``.

    torch's own backends have torch's repository; for others the metadata of their package has it.
    """
    if not spec.distribution:
        return "OWNER/NAME" if spec.modules() or spec.source is not None else "pytorch/pytorch"
    try:
        about = metadata.metadata(spec.distribution)
    except metadata.PackageNotFoundError:
        return "OWNER/NAME"
    links = [*(about.get_all("Project-URL") or ()), *(about.get_all("Home-page") or ())]
    found = [m for link in links if (m := re.search(r"github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?(?:[/#?]|$)", link))]
    return found[0][1] if found else "OWNER/NAME"
