"""Plain English: docstrings, comments, messages and documents are understood at first sight.

Three rules find sentences to rewrite. Rewrite the sentence; a synonym for the word is the same riddle.

* A docstring begins with a verb ("Return") or a named thing ("A task and its lease"), never with a word of `FIRST`.
* No text has a phrase of `PHRASES`.
* No sentence of a document begins with a clause as its subject ("What was tried is removed.").
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fxminify

ROOT = Path(fxminify.__file__).parent
FOLDERS = ("service", "minifier", "backends", "store", "repro_templates", "benchmarks", "tests/shared")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")
#: First words of a docstring that hide its subject.
FIRST = {"What", "One", "How", "Those", "Which", "Where", "Why", "Who", "That", "Whoever", "Whatever", "None"}
#: Phrases that hide the subject or the action. ``None`` is a value, so "is None" is allowed.
PHRASES = re.compile(
    r"\b(?:told|tells apart|(?:is|was|were) met|whoever|nobody|in vain|at work|(?-i:is none|are none)|that of|those of"
    r"|as ever|goes on from|for want of|it is said|is said)\b",
    re.IGNORECASE,
)
#: The first word of a docstring, and a comment.
DOCSTRING = re.compile(r'^ *r?"""\W*(\w+)', re.MULTILINE)
COMMENT = re.compile(r"(?:^|  )#:? .*")
CLAUSE = re.compile(r"(?:^|[.!] )(?:What|Who|Whoever|Whatever|Which)\b[^.?!|]{3,160}\.")
#: Sentences that are still allowed in a file or folder. Lower a number when you rewrite one; it never rises.
ALLOWED: dict[str, int] = {}
#: Lines that stay, by file and a part of the line, with the reason.
EXCEPTIONS = {
    ("store/private_values.py", "build builder jenkins ci nobody"): "nobody is the name of a user",
}


def sentences(path: Path) -> Iterator[str]:
    """Yield ``line: rule: text`` for each sentence of a file that breaks a rule."""
    found = python(path.read_text()) if path.suffix == ".py" else document(path.read_text())
    name = path.relative_to(ROOT).as_posix()
    for line, rule, text in found:
        if not any(name == file and part in text for file, part in EXCEPTIONS):
            yield f"{name}:{line}: {rule}: {text}"


def python(source: str) -> Iterator[tuple[int, str, str]]:
    for hit in DOCSTRING.finditer(source):
        if hit[1] in FIRST:
            yield source.count("\n", 0, hit.start(1)) + 1, "first word", hit[1]
    if not PHRASES.search(source):  # most files, which need not be parsed
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 3:
            yield from phrases(node.value, node.lineno)
    for number, line in enumerate(source.splitlines(), 1):
        if (comment := COMMENT.search(line)) and comment[0].count(" ") >= 3:
            yield from phrases(comment[0], number)


def document(text: str) -> Iterator[tuple[int, str, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and not line.startswith("    "):
            yield from phrases(line, number)
            yield from ((number, "clause as subject", hit[0].lstrip(". ")) for hit in CLAUSE.finditer(line))


def phrases(text: str, line: int) -> Iterator[tuple[int, str, str]]:
    for hit in PHRASES.finditer(text):
        around = " ".join(text[max(0, hit.start() - 50) : hit.end() + 40].split())
        yield line + text.count("\n", 0, hit.start()), hit[0].lower(), around


def place(sentence: str) -> str:
    """The key of a sentence in `ALLOWED`: its file in the root or in ``docs``, else its folder."""
    name = sentence.partition(":")[0]
    return name if name.endswith(".md") else name.rpartition("/")[0] or name


def test_every_text_is_plain_english_but_for_a_number_that_only_falls() -> None:
    code = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")] + list(ROOT.glob("*.py"))
    pages = [path for page in PAGES for path in ((ROOT / page).rglob("*.md") if page == "docs" else [ROOT / page])]
    found = [sentence for path in sorted({*code, *pages}) for sentence in sentences(path)]
    counts = Counter(map(place, found))
    assert [one for one in found if counts[place(one)] > ALLOWED.get(place(one), 0)] == []
    assert dict(counts) == ALLOWED, "lower the numbers of ALLOWED to these"


def test_a_riddle_is_found_and_a_plain_sentence_is_not() -> None:
    riddles = (
        'def f():\n    """What it tells."""\n    # the row of that of whoever came\n    return "it was met by us"\n'
    )
    assert [rule for _, rule, _ in python(riddles)] == ["first word", "was met", "that of", "whoever"]
    assert list(python('def f():\n    """Return the row, or None if it is None."""\n')) == []
    page = "What is old goes.\n```\nWhat is code stays.\n```\n"
    assert [rule for _, rule, _ in document(page)] == ["clause as subject"]
