"""`minify import`: the files of PyTorch's own tools, written by these tools about failures that they saw."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
from desks import Desk, MakeDesk

from fxminify.backends.capture.foreign_script import NotForeign, take
from fxminify.store.index import Index
from fxminify.store.live.build import build


@pytest.fixture(scope="module")
def dynamo(make_desk: MakeDesk) -> Desk:
    """A desk with ``minifier_launcher.py`` of a backend that refuses sin, and its data, as ``refused/refused.py``."""
    desk = make_desk()
    desk.run([*desk.command()[:1], "foreign.py", "refused"])
    assert (desk.path / "refused" / "refused.py").exists()
    return desk


@pytest.mark.slow
def test_a_launcher_becomes_a_capture_with_its_values(dynamo: Desk) -> None:
    """The backend's module is imported when asked; the folder with the data may have moved."""
    done = dynamo.minify("import", "refused/refused.py", "--trust", "--import", "foreign")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("minify: captured 1 failure (1 compile error); next: minify run repro.db\n")
    with Index.open(str(dynamo.db)) as index:
        row, case = index.captures.get(1), index.captures.case(1)
        graph, inputs = build(case, index.blobs.view(case.storages))
    assert (row.backend, row.kind, row.phase) == ("refuses_sin", "compile_error", "compile")
    assert row.failure is not None
    assert row.failure.message == "no lowering for sin"
    assert row.provenance["imported"] == "after_dynamo refused.py"
    assert "values" not in row.provenance
    assert any(torch.equal(v, torch.arange(12.0).reshape(3, 4)) for v in inputs)
    assert len([n for n in graph.graph.nodes if n.op == "call_function"]) == 3


@pytest.mark.slow
def test_without_its_data_the_values_are_said_to_be_random(dynamo: Desk) -> None:
    (dynamo.path / "alone.py").write_bytes((dynamo.path / "refused" / "refused.py").read_bytes())
    (dynamo.path / "refused" / "checkpoints").rename(dynamo.path / "away")
    try:
        (row,) = dynamo.json("import", "alone.py", "--trust", "--import", "foreign", "--db", "alone.db")["captured"]
    finally:
        (dynamo.path / "away").rename(dynamo.path / "refused" / "checkpoints")
    assert row["provenance"]["values"] == "random for 3 of 3 storages, which the script did not bring with it"
    assert row["kind"] == "compile_error"


@pytest.mark.slow
def test_a_backend_that_nobody_registers_can_be_named_or_replaced(dynamo: Desk) -> None:
    done = dynamo.minify("import", "refused/refused.py", "--trust", "--db", "x.db")
    assert (done.returncode, dynamo.path.joinpath("x.db").exists()) == (2, False)
    assert "nothing registers the backend 'refuses_sin' of refused.py; name the module: --import MODULE" in done.stderr
    done = dynamo.minify("import", "refused/refused.py", "--trust", "--backend", "aot_eager", "--db", "x.db")
    assert done.returncode == 1
    assert done.stderr.startswith("minify: refused.py shows no failure here, nothing was stored\n")


@pytest.mark.slow
def test_a_file_is_run_only_when_trusted(dynamo: Desk) -> None:
    done = dynamo.invoke("import", "refused/refused.py", "--db", "new.db")
    assert done.exit_code == 2
    assert "refused/refused.py is a program. Importing it\n  - runs it\n  - imports torch\nRun it?" in done.stderr
    assert done.stderr.endswith("Error: refused/refused.py was not run: it was not trusted (--trust).\n")
    assert not (dynamo.path / "new.db").exists()


@pytest.mark.slow
def test_a_file_that_is_another_one_by_the_time_it_runs_does_not_run(dynamo: Desk) -> None:
    """It is exchanged while the question is shown."""
    script, evil = dynamo.path / "asked.py", "import pathlib\npathlib.Path('evil').touch()\n"
    good = (dynamo.path / "refused" / "refused.py").read_text()
    script.write_text(good)

    def confirm(question: str) -> bool:
        script.write_text(evil + good)
        return True

    with contextlib.chdir(dynamo.path), pytest.raises(NotForeign, match=r"asked\.py could not be imported"):
        take("asked.db", [Path("asked.py")], confirm=confirm)
    assert not (dynamo.path / "evil").exists()
    assert not (dynamo.path / "asked.db").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read file.py: No such file or directory."),
        ("def f(:\n", "file.py is not Python in line 1: invalid syntax."),
        ("ERROR: Repro will not work as intended, whatever\n", "file.py is not Python in line 1: invalid syntax."),
        ("x = 1\0", "file.py is not Python: source code string cannot contain null bytes."),
        ("import torch\n", "file.py does not call PyTorch's run_repro: it is no repro.py, minifier_launcher.py or "
         "fx_graph_runnable.py. To capture the failures of a program: minify capture file.py"),
        ("from mine import run_repro\nrun_repro(1, 2)\n", "file.py does not call PyTorch's run_repro"),
    ],
)  # fmt: skip
def test_other_files_are_refused_before_anything_runs(desk: Desk, content: str | None, said: str) -> None:
    if content is not None:
        (desk.path / "file.py").write_text(content)
    done = desk.invoke("import", "file.py", "--trust")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {said}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("mod = Repro()", "import nowhere_to_be_found"), "minify: bad.py needs the module 'nowhere_to_be_found'"),
        (("mod = Repro()", "mod = Repro(1)"), "minify: bad.py fails before its graph reaches a backend: TypeError"),
        (("torch.sin(", "torch.matmul("), "minify: the graph of bad.py fails in eager already: TypeError"),
        (("if __name__", "if 0 and __name__"), "minify: bad.py ended without a call of run_repro"),
    ],
)
def test_a_broken_script_says_where_it_breaks(dynamo: Desk, change: tuple[str, str], said: str) -> None:
    text = (dynamo.path / "refused" / "refused.py").read_text()
    (dynamo.path / "bad.py").write_text(text.replace(*change))
    done = dynamo.minify("import", "bad.py", "--trust", "--import", "foreign", "--db", "bad.db")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.endswith("Error: bad.py could not be imported.\n")
    assert not (dynamo.path / "bad.db").exists()


@pytest.mark.slow
def test_files_of_inductor_and_of_accuracy_failures(make_desk: MakeDesk) -> None:
    """``repro.py`` after AOTAutograd, ``fx_graph_runnable.py``, and a launcher of level 4; then all are minified."""
    desk = make_desk()
    desk.run([*desk.command()[:1], "foreign.py", "wrong", "aot", "runnable", "healthy"])
    files = ("repro.py", "fx_graph_runnable.py", "wrong/wrong.py")
    rows = desk.json("import", *files, "--trust", "--import", "foreign")["captured"]
    found = {(r["kind"], r["backend"], r["occurrences"]) for r in rows}
    assert found == {("compile_error", "inductor", 2), ("divergence", "sin_is_cos", 1)}
    assert desk.minify("run", "--no-explain", "--runs", "1", "--replays", "1").returncode == 0
    assert [(r["state"], r["nodes_after"]) for r in desk.json("list")] == [("verified", 1)] * len(rows)
    done = desk.minify("import", "healthy.py", "--trust")
    assert done.returncode == 1
    assert "healthy.py shows no failure here, nothing was stored\n" in done.stderr
    assert "1 graph compiled by inductor, none failed" in done.stderr


@pytest.mark.slow
def test_a_crash_of_the_backend_is_captured(dynamo: Desk) -> None:
    (dynamo.path / "aborting.py").write_text(
        "import os, torch\nfrom torch._dynamo import register_backend\n"
        "@register_backend\ndef aborts(gm, inputs):\n    os.abort()\n"
    )
    options = ("--import", "aborting", "--backend", "aborts", "--db", "crash.db")
    (row,) = dynamo.json("import", "refused/refused.py", "--trust", *options)["captured"]
    assert (row["kind"], row["phase"]) == ("crash", "compile")


ISSUE = """\
My model is refused. The model:

```python
import torch, planted

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.sin(torch.relu(x))
```

I call it like this:

```python
torch.compile(Net(), backend="BACKEND")(torch.ones(4))
```

```
Traceback (most recent call last): ...
```
"""


@pytest.mark.slow
def test_the_blocks_of_an_issue_are_tried_until_one_fails(dynamo: Desk) -> None:
    (dynamo.path / "issue.md").write_text(ISSUE.replace(", planted", ", foreign").replace("BACKEND", "refuses_sin"))
    done = dynamo.json("import", "issue.md", "--trust", "--db", "issue.db")
    assert [(t["block"], t["line"], t["failed"]) for t in done["tried"]] == [
        (3, 17, False), (1, 3, False), (2, 13, False), (0, 3, True),
    ]  # fmt: skip
    assert [t["result"] for t in done["tried"][1:3]] == [
        "runs, and compiles nothing", "raises outside a backend: NameError: name 'torch' is not defined",
    ]  # fmt: skip
    (row,) = done["captured"]
    assert (row["backend"], row["kind"], row["provenance"]["imported"]) == (
        "refuses_sin", "compile_error", "block all of an issue",
    )  # fmt: skip


@pytest.mark.slow
def test_an_issue_that_does_not_fail_here_says_so(dynamo: Desk) -> None:
    """``--backend`` replaces the backend of the report."""
    text = ISSUE.replace(", planted", ", foreign").replace("BACKEND", "refuses_sin")
    done = dynamo.run([*dynamo.command("import", "-", "--trust", "--backend", "eager", "--db", "healthy.db")])
    assert (done.returncode, "standard input has no code block of Python" in done.stderr) == (2, True)
    (dynamo.path / "healthy.md").write_text(text)
    done = dynamo.minify("import", "healthy.md", "--trust", "--backend", "eager", "--db", "healthy.db")
    assert done.returncode == 1
    assert "healthy.md: all blocks together: runs, and no backend fails\n" in done.stderr
    assert "no block of healthy.md fails under a backend here; nothing was captured" in done.stderr
    assert not (dynamo.path / "healthy.db").exists()
