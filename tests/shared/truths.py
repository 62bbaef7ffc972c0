"""Known conditions of programs, and the statements of reports that contradict them.

``truth.toml`` beside the programs says what each key means. A statement is a claim about a feature of the minimal case,
a sentence of a report, or a number in one.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: What a person reads of the answers about a minimal case.
_TOLD = re.compile(
    r"(?:Needs|Passes with|Does not matter \(as tested\):|Also fails with|Fails in another way with|In place of|"
    r"Not tested, because) .*?\.(?=\s|$)"
)
_OFF = re.compile(r"off by ([^ ,]+)")
#: The difference at the first node of the captured graph. The script has another one.
_OF_THE_CAPTURED = re.compile(r"of the captured graph \(off by [^)]*\)")
#: Runs the script in ``sys.argv[1]`` and says by how much and where what it compares differs.
_DIFFERENCE = """
import json, runpy, sys, traceback
import torch
from torch.utils._pytree import tree_leaves

try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except AssertionError as error:
    frame = next(f for f, _ in traceback.walk_tb(error.__traceback__) if f.f_code.co_name == "assert_close")
    pairs = zip(tree_leaves(frame.f_locals["actual"]), tree_leaves(frame.f_locals["expected"]))
    found = []
    for a, e in pairs:
        a, e = torch.as_tensor(a).detach(), torch.as_tensor(e).detach()
        try:
            torch.testing.assert_close(a, e, equal_nan=True, check_stride=False, check_dtype=False)
        except AssertionError:
            off = (a.to(torch.complex128) - e.to(torch.complex128)).abs()
            off[(a != a) & (e != e)] = 0
            off[a == e] = 0
            found.append(float("inf") if off.isnan().any() else float(off.max()))
    print(json.dumps(found))
else:
    print("[]")
"""


@dataclass(frozen=True, slots=True)
class Checked:
    """So many statements were checked, and these are false."""

    count: int = 0
    false: list[str] = field(default_factory=list)

    def __add__(self, other: Checked) -> Checked:
        return Checked(self.count + other.count, [*self.false, *other.false])


def known(folder: Path) -> dict[str, dict[str, Any]]:
    """The conditions of the programs in ``folder``, by their names."""
    return tomllib.loads((folder / "truth.toml").read_text())


def about_features(found: Mapping[str, Any], truth: Mapping[str, Any]) -> Checked:
    """Check the claims and the answers of `minify show --json`."""
    out = Checked()
    for feature in (found["matters"] or {}).get("features", ()):
        name, claim = named(feature), feature["claim"]
        false = []
        if claim == "does not matter" and _any(truth.get("matters", ()), name):
            false.append(f"{name} matters, and the report denies it")
        if claim in ("matters", "fails in another way") and _any(truth.get("free", ()), name):
            said = [f"{a['value']} {a['outcome']} {a['said']}".strip() for a in feature["answers"]]
            false.append(f"{name} does not matter, and the report says so: {'; '.join(said)}")
        for outcome, key, verb in (("pass", "fails", "passes"), ("same", "passes", "fails")):
            values = {v for pattern, vs in truth.get(key, {}).items() if re.search(pattern, name) for v in vs}
            wrong = [a["value"] for a in feature["answers"] if a["outcome"] == outcome and a["value"] in values]
            false += [f"{name}: the report lists {value} as one that {verb}" for value in wrong]
        out += Checked(1 + len(feature["answers"]), false)
    features = (found["matters"] or {}).get("features", ())
    matter = [named(feature) for feature in features if feature["claim"] == "matters"]
    missing = [pattern for pattern in truth.get("told", ()) if not _any([pattern], " | ".join(matter))]
    return out + Checked(len(truth.get("told", ())), [f"nothing says that {pattern} matters" for pattern in missing])


def named(feature: Mapping[str, Any]) -> str:
    """The aspect and the name of a feature: ``argument dim of torch.sum``, ``default stride of torch.avg_pool1d``."""
    return f"{feature['aspect']} {feature['name'].removeprefix('argument ')}"


def about_the_rest(found: Mapping[str, Any], truth: Mapping[str, Any]) -> Checked:
    """Check the report about the captured graph without the culprit, and about the layers."""
    out = Checked()
    if found["rest"] is not None and "rest" in truth:
        said = found["rest"].startswith(truth["rest"])
        out += Checked(1, [] if said else [f"of the rest it says: {found['rest']}"])
    if (ablation := found["ablation"]) and "layer" in truth:
        said = truth["layer"] in ablation["enters"]
        out += Checked(1, [] if said else [f"it enters in {truth['layer']}, and the report says {ablation['enters']}"])
    return out


def about_sentences(found: Mapping[str, Any], reports: Mapping[str, str]) -> Checked:
    """Check that each report has the sentences of the explanation, and no others of their kind."""
    explained = found["matters"] or {}
    told = {" ".join(text.split()) for text in (explained.get("summary", ""), *explained.get("sentences", ()))}
    told |= {plain(text) for text in told}  # a report that has no mark-up loses what is in angle brackets
    own = {sentence for text in told for sentence in _TOLD.findall(text)}
    out = Checked()
    for name, report in reports.items():
        sentences = set(_TOLD.findall(report.replace(r"\_", "_")))  # Markdown of a name that ends with it
        out += Checked(len(sentences), [f"{name} says, and nothing shows: {s}" for s in sorted(sentences - own)])
    return out


def about_numbers(script: Path, reports: Mapping[str, str], modules: Path) -> Checked:
    """Check that all numbers about the difference are the one that the script itself shows, with its ``modules``."""
    done = subprocess.run(
        [sys.executable, "-c", _DIFFERENCE, str(script)],
        capture_output=True, text=True, check=False, cwd=script.parent,
        env={**os.environ, "PYTHONPATH": str(modules)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    differences = {f"{number:.3g}" for number in json.loads(done.stdout.splitlines()[-1])}
    out = Checked()
    for name, report in reports.items():
        numbers = _OFF.findall(_OF_THE_CAPTURED.sub("", report))
        wrong = sorted({number for number in numbers if number not in differences})
        false = [f"{name} says off by {number}, the script {sorted(differences)}" for number in wrong]
        out += Checked(len(numbers), false)
    return out


def minify(*args: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fxminify", *map(str, args)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def _reported(cwd: Path, id: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the output of `minify show --json` for a capture, and the words of every report."""
    found = json.loads(minify("show", "repro.db", id, "--json", cwd=cwd).stdout)
    issue = minify("repro", "repro.db", id, "--format", "issue", cwd=cwd).stdout
    (cwd / "repro.py").write_text(minify("repro", "repro.db", id, cwd=cwd).stdout)
    minify("report", "repro.db", id, "-o", "report.html", cwd=cwd)
    reports = {
        "list": minify("list", "repro.db", cwd=cwd, COLUMNS="1000").stdout,
        "show": minify("show", "repro.db", id, cwd=cwd).stdout,
        "issue": issue,
        "page": (cwd / "report.html").read_text().partition("<main")[2],
        "script": (cwd / "repro.py").read_text(),
    }
    return found, {name: plain(text) for name, text in reports.items()}


def about_reports(cwd: Path, id: int, truth: dict[str, Any], modules: Path) -> Checked:
    """The statements about capture ``id``, of which those that contradict ``truth`` or the script are false."""
    found, reports = _reported(cwd, id)
    out = about_features(found, truth) + about_the_rest(found, truth)
    out += about_sentences(found, reports)
    if "off by" in reports["script"]:
        out += about_numbers(cwd / "repro.py", reports, modules)
    return out


def assert_true(name: str, found: Checked) -> None:
    """Fail for a false statement. The file in ``FXMINIFY_TRUTH`` gets a line with the number of statements."""
    if path := os.environ.get("FXMINIFY_TRUTH"):
        with Path(path).open("a") as file:
            file.write(json.dumps({"program": name, "statements": found.count, "false": found.false}) + "\n")
    assert found.false == [], found.false  # pytest explains no assertion of a module that is no test
    assert found.count > 0


def plain(text: str) -> str:
    """The words of a report without its mark-up and its line breaks."""
    without = re.sub(r"\\(?=[^\w\s])", "", re.sub(r"<(/?(?:p|div|h\d|li|tr|td|th|dd|dt|pre)\b)[^<>]*>", " ", text))
    return " ".join(html.unescape(re.sub(r"<[^<>]*>", "", without)).split())


def _any(patterns: Iterable[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)
