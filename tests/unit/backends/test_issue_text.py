"""The code blocks of an issue: which are run, and what a person is asked before that. Nothing runs here."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxminify.backends.capture.issue_text import LONGEST, MOST, NoBlocks, blocks, take

REPORT = """\
### Bug

```
PyTorch version: 2.13
```

~~~python
import torch
x = 1
~~~

    y = x + 1

```pycon
>>> import torch
>>> def f():
...     return 1
...
1
>>> f()
```
```bash
pip install torch
```
```python
# only a remark
"and a text"
```
```
Traceback (most recent call last):
  File "a.py", line 1, in <module>
ValueError: no
```
"""


def test_each_block_with_its_line_and_the_reason_why_it_does_not_run() -> None:
    assert [(b.number, b.line, b.refused) for b in blocks(REPORT)] == [
        (1, 3, "is not Python in line 1 of it: invalid syntax"),
        (2, 7, ""),
        (3, 12, ""),
        (4, 14, ""),
        (5, 22, "is bash, not Python"),
        (6, 25, "has no statement to run"),
        (7, 29, "is a traceback, not Python"),
    ]


def test_prompts_and_outputs_of_a_session_are_removed() -> None:
    assert blocks(REPORT)[3].source == "import torch\ndef f():\n    return 1\n\nf()\n"


def test_a_person_sees_all_that_would_run(tmp_path: Path) -> None:
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(NoBlocks, match=r"no block of issue\.md was run: it was not trusted \(--trust\)"):
        take(str(tmp_path / "x.db"), REPORT + "```py\nevil('\u202e')\n```\n", "issue.md", confirm=confirm)
    (question,) = asked
    assert "4 blocks of Python" in question
    for line in ("x = 1", "y = x + 1", "import torch", "evil('·')"):
        assert f"    | {line}\n" in question
    assert "pip install" not in question
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no code at all", "has no code block of Python"),
        ("```c\nint x;\n```", "has no code block of Python"),
        ("x" * (LONGEST + 1), "at most 1,000,000 are read"),
        ("```py\nf()\n```\n" * (MOST + 1), "has 21 blocks of Python, at most 20 are run"),
    ],
)
def test_a_text_without_a_program_is_refused(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxminify.backends.capture.supervise.run", None)
    with pytest.raises(NoBlocks, match=said):
        take("x.db", text, "issue.md", confirm=lambda _: True)
