"""What is written to descriptor 2 while a backend compiles is recorded, and reaches where the program's output goes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fxminify.backends.capture import standard_error
from fxminify.backends.capture.standard_error import MOST_BYTES, STDERR, Relay, recorded


@contextmanager
def ending_in(descriptor: int) -> Iterator[None]:
    """Descriptor 2 is ``descriptor`` inside the block. No fixture: pytest redirects it between fixtures and tests."""
    kept = os.dup(STDERR)
    os.dup2(descriptor, STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)
        os.close(descriptor)


def file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@contextmanager
def relayed(path: Path) -> Iterator[Relay]:
    """Descriptor 2 is the file ``path``, and this process has a relay, as a program under `minify capture`."""
    with ending_in(file(path)):
        found = Relay.create()
        assert found is not None
        standard_error.use(found.described())
        try:
            yield found
        finally:
            standard_error.use(None)
            os.close(found.data)
            os.close(found.state)


def test_what_an_ordinary_file_gets_is_read_from_it(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    for flags in (os.O_APPEND, 0):
        with ending_in(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags)):
            os.write(STDERR, b"before\n")
            with recorded() as written:
                os.write(STDERR, b"error: inside\n")
            assert written() == "error: inside\n"
        assert path.read_text() == "before\nerror: inside\n"


def test_of_a_pipe_nothing_is_recorded_without_a_relay() -> None:
    reading, writing = os.pipe()
    with ending_in(writing), recorded() as written:
        os.write(STDERR, b"error\n")
    assert written() == ""
    assert os.read(reading, 100) == b"error\n"
    os.close(reading)


def test_the_relay_passes_on_everything_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    with relayed(path) as relay:
        os.write(STDERR, b"before\n")
        with recorded() as written:
            os.write(STDERR, b"first\n")
            with open(path, "ab") as parents:  # the parent does so meanwhile
                relay.pass_on(parents.fileno())
            assert path.read_text() == "before\nfirst\n"
            os.write(STDERR, b"second\n")
            with recorded() as nested:
                os.write(STDERR, b"third\n")
            assert nested() == "third\n"
        assert written() == "first\nsecond\nthird\n"
        assert relay.text(relay.began(), relay.size()) == "third\n"
        os.write(STDERR, b"after\n")
        assert path.read_text() == "before\nfirst\nsecond\nthird\nafter\n"


def test_a_process_with_another_standard_error_has_no_relay(tmp_path: Path) -> None:
    with relayed(tmp_path / "stderr") as relay:
        described = relay.described()
        assert Relay.inherited(described) == relay
        assert Relay.inherited({**described, "files": [10_000, 10_001]}) is None
        with ending_in(file(tmp_path / "other")):
            assert Relay.inherited(described) is None


def test_a_long_text_is_kept_without_its_middle(tmp_path: Path) -> None:
    with relayed(tmp_path / "stderr"), recorded() as written:
        os.write(STDERR, b"error: first\n")
        for _ in range(3 * MOST_BYTES // 1000):
            os.write(STDERR, b"x" * 999 + b"\n")
        os.write(STDERR, b"last\n")
        text = written()
    assert len(text) <= MOST_BYTES + 10
    assert text.startswith("error: first\n")
    assert text.endswith("last\n")


def test_a_fork_inside_a_compilation_leaves_the_parent_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    with relayed(path):
        with recorded() as written:
            if (child := os.fork()) == 0:
                with recorded() as own:
                    os.write(STDERR, b"of the child\n")
                os._exit(own() != "of the child\n")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            os.write(STDERR, b"of the parent\n")
        assert written() == "of the child\nof the parent\n"
        os.write(STDERR, b"after\n")
        assert path.read_text() == "of the child\nof the parent\nafter\n"
