"""Which values of a machine are masked, where, and which are too short or too common for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from indexes import chain, failing

from fxminify.store import private_values
from fxminify.store.private_values import PrivateValues, covers
from fxminify.store.scrubbing import masked_case, masked_failure, masked_provenance
from fxminify.store.signature import signature

ALICE = {"USER": "alice", "HOME": "/home/alice", "HOSTNAME": "ws-017.corp.example", "LAB_KEY": "k9-Lmn-0042"}
BOB = {"USER": "bob", "HOME": "/srv/people/bob", "HOSTNAME": "pluto", "LAB_KEY": "zz-zz/17 'q'"}


def of(environment: Mapping[str, str]) -> PrivateValues:
    return private_values.of(environment)


@pytest.mark.parametrize(
    ("environment", "text", "masked"),
    [
        # The user, the host with and without its domain, the home directory.
        ({"USER": "alice"}, "alice's, Alice, malice, alice2, ALICE_x", "<user>'s, <user>, malice, alice2, <user>_x"),
        ({"USER": "alice"}, "in /tmp/torchinductor_alice/ab.py", "in /tmp/torchinductor_user/ab.py"),
        ({"USER": "Zbigniew"}, "zbigniew, ZBIGNIEW, Zbigniew2", "<user>, <user>, Zbigniew2"),
        ({"HOSTNAME": "box7.lab.example"}, "BOX7, box7.lab.example of lab.example", "<host>, <host> of <host>"),
        ({"HOME": "/home/alice"}, "/home/alice/a.py and /home/alice.", "~/a.py and /home/user."),
        ({"HOME": "/home/alice"}, "/home/alicex/a.py of alice", "/home/alicex/a.py of <user>"),
        # Secrets, whatever the variable is called.
        ({"DB_PASSWORD": "s3cr"}, "login with s3cr failed", "login with <masked> failed"),
        ({"DB_PASSWORD": "hunter2!"}, "xhunter2!y", "x<masked>y"),
        ({"PRIVATE_TOKEN": "correct-horse"}, "token 'correct-horse'", "token '<masked>'"),
        ({"LICENSE": "a9-77-xq-3"}, "license a9-77-xq-3.", "license <masked>."),
        ({"DB": "postgres://svc:S3cr%40t@db.acme.example/x"}, "S3cr@t at db.acme.example", "<masked> at <masked>"),
        ({"KEYS": "first line of it all\nsecond line of it all"}, "(second line of it all)", "(<masked>)"),
        ({"NOTE": 'say "hi" to me\\you'}, repr('say "hi" to me\\you'), "'<masked>'"),
        ({"ADDRESS": "10.20.30.40"}, "10.20.30.40 refused", "<masked> refused"),
        # A path remains a path.
        ({"DATA": "/data/acme/sets"}, "open /data/acme/sets/x.bin", "open /masked/value/x.bin"),
        ({"PYTHONPATH": "/data/acme/lib:/usr/lib"}, "/data/acme/lib/a, /usr/lib/b", "/masked/value/a, /usr/lib/b"),
        ({"PROJECT": "skunk77"}, "a/skunk77/b.py of skunk77", "a/masked/b.py of <masked>"),
        # Short and common values, names of torch, numbers, switches, locales, settings of compilers.
        ({"USER": "test"}, "test failed in /tmp/test/x", "test failed in /tmp/test/x"),
        ({"USER": "torch", "HOSTNAME": "dev"}, "torch.relu on dev", "torch.relu on dev"),
        ({"USER": "root", "HOME": "/root", "HOSTNAME": "localhost"}, "/root: root@localhost", "/root: root@localhost"),
        ({"USER": "al"}, "al is in all", "al is in all"),
        ({"USER": "will"}, "inputs that will be", "inputs that will be"),
        ({"USER": "matmul"}, "aten.matmul.default", "aten.matmul.default"),
        ({"A": "short", "B": "inductor", "C": "float32", "D": "aten.relu"}, "short inductor float32 aten.relu",
         "short inductor float32 aten.relu"),
        ({"A": "123456", "B": "true", "C": "1.5.0", "D": "4096,8192", "LANG": "de_AT.UTF-8"},
         "123456 true 1.5.0 4096,8192 de_AT.UTF-8", "123456 true 1.5.0 4096,8192 de_AT.UTF-8"),
        ({"TERM": "xterm-256color", "PATH": "/usr/local/bin:/usr/bin"}, "xterm-256color /usr/local/bin/cc",
         "xterm-256color /usr/local/bin/cc"),
        ({"TORCH_LOGS": "+dynamo,guards", "CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, "+dynamo,guards GPU-8932f937",
         "+dynamo,guards GPU-8932f937"),
        ({"DB_PASSWORD": "true", "MY_TOKEN": "12345"}, "true 12345", "true 12345"),
        # A value that is an identifier is no part of a longer one.
        ({"PART": "front9"}, "node front9_conv_1, front9", "node front9_conv_1, <masked>"),
    ],
)  # fmt: skip
def test_what_is_masked(environment: dict[str, str], text: str, masked: str) -> None:
    values = of(environment)
    assert values.mask(text) == masked
    assert values.mask(masked) == masked
    assert bool(values.found(text)) == (text != masked)


def test_what_is_found_is_named_and_not_repeated() -> None:
    found = of(ALICE).found("/home/alice/x: alice on ws-017 with k9-Lmn-0042, alice")
    assert found == [
        "the home directory", "the user name", "the host name", "the value of the environment variable LAB_KEY",
    ]  # fmt: skip
    assert of({"USER": "root"}).common == ("the user name", "the host name", "the home directory")
    assert of(ALICE).described() == "the home directory, the user name, the host name, 1 value of the environment"


def test_a_value_that_the_program_removed_later_is_masked() -> None:
    values = private_values.of({}, earlier=[{"LAB_KEY": "k9-Lmn-0042"}])
    assert values.mask("k9-Lmn-0042") == "<masked>"


def test_one_failure_has_one_signature_whoever_met_it() -> None:
    def met(person: dict[str, str]) -> str:
        user, home, host, key = (person[name] for name in ("USER", "HOME", "HOSTNAME", "LAB_KEY"))
        failure = failing(
            f"no kernel for {user}@{host} in {home}/k.cpp:3 ({host.partition('.')[0]})",
            causes=(("KeyError", f"{key} of {user}"),), diagnostics=f"error: {key} in /tmp/x_{user}/y.cpp",
        )  # fmt: skip
        return signature(masked_failure(failure, of(person).mask)).digest

    assert met(ALICE) == met(BOB)


@pytest.mark.parametrize(
    "text",
    ["no file /home/alice/k.cpp:3", "in '/home/alice'", "-I/home/alice/inc", "file:///home/alice/a",
     "L_x_/home/alice/m.py", "cache /tmp/torchinductor_alice/ab/cab.py:7",
     "in /opt/ws-017/x.py", "open /data/k9-Lmn-0042/w.bin"],
)  # fmt: skip
def test_the_signature_of_a_path_is_what_it_was_before_it_was_masked(text: str) -> None:
    """Signatures of captures that an older fxminify made."""
    masked = masked_failure(failing(text), of(ALICE).mask)
    assert masked != failing(text)
    assert signature(masked).digest == signature(failing(text)).digest


@pytest.mark.parametrize(
    ("masked", "text", "same"),
    [
        ("no <user> here", "no bob here", True),
        ("<masked> of <user>", "x of y", True),
        ("a <masked> b <masked> a", "a 1 b 2 a", True),
        ("no <user> here", "no bob there", False),
        ("a <masked> b", "a b", False),
        ("no user", "no user", False),
    ],
)
def test_a_placeholder_covers_anything(masked: str, text: str, same: bool) -> None:
    assert covers(masked, text) is same


def test_code_is_not_changed() -> None:
    mask = of(ALICE).mask
    case = chain(["sin"], imports=({"module": "alice", "search_path": ["/home/alice/lib", "/opt/x/lib"]},))
    backend = {**case.backend, "options": {"key": "k9-Lmn-0042"}, "source": {"text": "x = 'alice'", "file": "alice.py"}}
    node = case.graph.compute[0]
    named = case.graph.map_nodes(lambda n: type(n)(n.name, n.op, n.target, n.args, n.kwargs, {"stack": "alice.py:3 f"}))
    given = type(case)(**{f: getattr(case, f) for f in ("inputs", "tensors", "imports")}, graph=named, backend=backend)
    made = masked_case(given, mask, of(ALICE).folder)
    assert made.backend["options"] == {"key": "k9-Lmn-0042"}
    assert made.backend["source"] == {"text": "x = 'alice'", "file": "user.py"}
    assert made.imports == ({"module": "alice", "search_path": ["~/lib", "/opt/x/lib"]},)
    assert [n.meta["stack"] for n in made.graph.nodes] == ["<user>.py:3 f"] * 3
    assert made.graph.compute[0].target == node.target
    assert masked_provenance({"backend": "alice", "program": "alice.py"}, mask) == {
        "backend": "alice", "program": "<user>.py",
    }  # fmt: skip
