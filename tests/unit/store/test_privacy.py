"""What a sentence says of the machine it was made on: nothing."""

from __future__ import annotations

import time

import pytest

from fxminify.store.masking import mask
from fxminify.store.privacy import private, revealing, shareable, shareable_script


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("at /home/me/secret/file.py:3", "at file.py:3"),
        ("/home/me is full", "<path> is full"),
        ("L_x_/home/me/model.py", "L_x_model.py"),
        ("in /tmp/torchinductor_me/ab/cabc.py line 3", "in cabc.py line 3"),
        ("file:///home/me/a.txt", "a.txt"),
        ("~/x/y.py", "y.py"),
        ("C:\\Users\\me\\x.py", "x.py"),
        ("/opt/v/lib/python3.11/site-packages/torch/_inductor/x.py", "torch/_inductor/x.py"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=<masked>"),
        ("https://me:token@example.org/x/y", "https://example.org/x/y"),
        ("me@example.org at 10.0.0.1:29500", "<address> at <address>:29500"),
        ("calls <function f at 0x7f2a1c0d5e40> at 0x7f2a", "calls <function f> at 0x7f2a"),
        ("a Tensor at <0x7f2a1c0d5e40>, an object at 0x7f2a1c0d5e40", "a Tensor, an object"),
        ("handle=0x7f2a1c0d5e40 (0x00007f2a1c0d5e40)", "handle=0x... (0x...)"),
        # What only looks like it.
        ("code 0x1f, mask 0xffffffff", "code 0x1f, mask 0xffffffff"),
        ("see https://pytorch.org/docs/x.html", "see https://pytorch.org/docs/x.html"),
        ("and/or 1/2 /2 x // y", "and/or 1/2 /2 x // y"),
        ("torch/_inductor/x.py:3", "torch/_inductor/x.py:3"),
        ("Unexpected token = x, token: 5", "Unexpected token = x, token: 5"),
        ("expected [4, 5] / [3], (2/3)", "expected [4, 5] / [3], (2/3)"),
    ],
)
def test_a_sentence_keeps_what_is_not_of_this_machine(text: str, kept: str) -> None:
    assert private(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("no kernel in /data/acme/k.cpp:12:3: error", "no kernel in /masked/k.cpp:12:3: error"),
        ("at /opt/v/lib/python3.11/site-packages/torch/_inductor/x.py", "at torch/_inductor/x.py"),
        ("/home/me is full, as is /tmp", "/masked is full, as is /masked"),
        ("key: token=AAAABBBBCCCCDDDD", "key: token=<masked>"),
        ("relu of 0x7f2a1c0d5e40", "relu of 0x7f2a1c0d5e40"),
    ],
)
def test_what_is_shared_keeps_its_signature(text: str, kept: str) -> None:
    assert shareable(text) == kept
    assert mask(shareable(text)) == mask(text).replace("AAAABBBBCCCCDDDD", "<masked>")
    assert list(revealing(shareable(text))) == []


def test_a_script_is_shared_with_its_code_as_it_is() -> None:
    script = (
        '# from /data/acme/a.py\n"""It fails in /data/acme/x.cpp.\n"""\nx = "/data/acme/x"  # see /data/acme/b.py\n'
    )
    masked = script.replace("/data/acme/a.py", "/masked/a.py").replace("/data/acme/x.cpp", "/masked/x.cpp")
    assert shareable_script(script) == masked.replace("/data/acme/b.py", "/masked/b.py")
    assert shareable_script("def (") == "def ("


def test_code_is_not_changed_but_looked_at() -> None:
    assert list(revealing("open('/home/me/x.bin')")) == ["an absolute path"]
    assert list(revealing("key = 'ghp_abcdefghijklmnopqrst'")) == ["what looks like a secret"]
    assert list(revealing("mail('me@example.org')")) == ["an address"]
    assert list(revealing("x = a / b  # see https://pytorch.org/x/y")) == []


def test_names_of_cached_kernels_say_nothing() -> None:
    path = "/tmp/torchinductor_maria/3w/c3wtn3xwsxlu6ixyei4gaqbbop6onvxfepmoaiqix3b447awsv5u.main.cpp"
    assert private(f"kernel, {path}:128, index out of bounds") == "kernel, digest.main.cpp:128, index out of bounds"
    assert private("/srv/a/models/llama.cpp") == "llama.cpp"


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq+x/\nAAAA\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        # Short ones behind keys that tell, quoted or not.
        ("login failed: password=hunter2.", "login failed: password=<masked>"),
        ("host=db user=svc password='s3cr3t!' dbname=x", "host=db user=svc password='<masked>' dbname=x"),
        ('{"password": "abcd", "api_key": "hunter2"}', '{"password": "<masked>", "api_key": "<masked>"}'),
        ("client_secret: x9!z", "client_secret: <masked>"),
        # Words, too.
        ("password=letmein password: letmein", "password=<masked> password: <masked>"),
        ("AWS_SECRET_ACCESS_KEY=wordonly api_key: abcdwordy", "AWS_SECRET_ACCESS_KEY=<masked> api_key: <masked>"),
        ("pw=abcd; curl -u bob:pw1 x", "pw=<masked>; curl -u bob:<masked> x"),
        ("sk_test_" + "a" * 20, "<masked>"),
        # Passwords of addresses, with the characters that divide an address.
        ("postgresql://svc:hun@ter3@db/x", "postgresql://db/x"),
        ("postgresql://svc:hun/ter3@db/x", "postgresql://db/x"),
        # What remains of a mail address whose host is known.
        ("from jane.doe@<host> and jane.doe@<host>.example.com", "from <address> and <address>"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = <masked>"),
        # In addresses and options.
        ("GET https://a.example/x?token=abcd1&page=2#sig=zzzz",
         "GET https://a.example/x?token=<masked>&page=2#sig=<masked>"),
        ("https://b.example/x?X-Amz-Signature=0123abcd", "https://b.example/x?X-Amz-Signature=<masked>"),
        ("tool --x-key=AbCd1 --password hunter2 --api-key 'a b c d'",
         "tool --x-key=<masked> --password <masked> --api-key '<masked>'"),
        # Headers.
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic <masked>"),
        ("'authorization': 'Bearer 2YotnFZFEjr1zCsicMWpAA'", "'authorization': 'Bearer <masked>'"),
        ("X-Api-Key: k-1234", "X-Api-Key: <masked>"),
        ("Set-Cookie: session=abcdef; Path=/\nHost: x", "Set-Cookie: <masked>\nHost: x"),
        ("bearer 2YotnFZFEjr1zCsicMWpAA failed", "bearer <masked> failed"),
        # Tokens of services, ours too.
        ("AIzaSyA-1234567890abcdefghijklmnopqrstu", "<masked>"),
        ("fxm_12_" + "a" * 43, "<masked>"),
        ("npm_abcdefghijklmnopqrstuvwxyz", "<masked>"),
        ("sq0csp-" + "Ab1" * 12, "<masked>"),
        ("AKC" + "a1B" * 20 + " APBx" + "1z" * 10, "<masked> <masked>"),
        ("SK" + "0af9" * 8 + " AC" + "12ef" * 8, "<masked> <masked>"),
        ("0af9" * 8 + "-us12", "<masked>"),
        ("bot 123456789:AAF-" + "x_9" * 10 + "q", "bot <masked>"),
        ("M" + "Ab1" * 8 + ".Xy_z-1." + "Ab1" * 9, "<masked>"),
        ("AccountName=a;AccountKey=abCD/1==;x", "AccountName=a;AccountKey=<masked>;x"),
        ("GPU_PASSWORD=abcdefgh make", "GPU_PASSWORD=<masked> make"),
        # Addresses that are a secret as a whole.
        ("https://hooks.slack.com/services/T0/B0/abc", "https://hooks.slack.com/<masked>"),
        ("https://discord.com/api/webhooks/12/abcd_-x", "https://discord.com/api/webhooks/<masked>"),
        ("https://a.webhook.office.com/webhookb2/ab@cd/x", "https://a.webhook.office.com/<masked>"),
        # A block, its beginning, and its end.
        (f"key:\n{PEM}\nafter", "key:\n<masked>\nafter"),
        (PEM[:60], "<masked>"),
        (f"({PEM[40:]})", "(<masked>)"),
        # Machines.
        ("connect to [2001:db8::8a2e:370:7334]:29500, fe80::1%eth0 and fd12:3456:789a::1",
         "connect to [<address>]:29500, "
         "<address> and <address>"),
        ("db7.corp.example:5432, gpu-3.de:22, tcp://node3:29500", "<host>:5432, <host>:22, tcp://<host>:29500"),
        ("2a02:8071:b82:1::5: refused, 2a02:8071:b82:1::5:", "<address>: refused, <address>:"),
        ("00:1A:2b:3c:4d:5e is up", "<address> is up"),
    ],
)  # fmt: skip
def test_shapes_of_secrets_and_machines_are_masked(text: str, kept: str) -> None:
    assert private(text) == shareable(text) == kept
    assert private(kept) == kept
    assert list(revealing(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "eos_token='<pad>' pad_token=</s> max_new_tokens=20, num_tokens=1024", "password: required, secret=None",
        "query, key, value = qkv; key=8, num_key_value_heads=8", "x = get(key='relu'); KeyError: 'sin'",
        "x[1::2] x[2048::] x[100::200] a[::-1] [1:2, ::2]", "12:34:56.789 std::vector<c10::Half> at::native::add",
        "train.py:123 x.cpp:45 a.b.cc:12 torch.nn:12 and ::1, localhost:80", "Bearer of bad news; basic types of 12",
        "tool --dry-run --key-value-store 5 --sort-key name", "signature mismatch: code=5, s0:s1:s2, f(a:1, b:2)",
        "http://localhost:8080/x https://pytorch.org/docs/x.html?code=1",
        "token_type_ids=input, tokenizer=AutoTokenizer", "APACHE SKIP ACCESS AP0 at 12345678:90, https://x.example/hooked/ab",
        "https://docs.example.org/webhooks PASSWORD=None",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_secret_or_a_machine_stays(text: str) -> None:
    assert private(text) == text
    assert list(revealing(text)) == []


#: What a hostile message may repeat: beginnings of all that is looked for.
UNITS = (
    "a-", "a.", "/a", "a/", "a@", "-I/", "~", "token", "token-", "(", "[", "\\a", "C:\\", "eyJ", "-eyJaaaaaaaaaaaa",
    "1.1.", "://a", "a", " ", "\n", "file://", "site-packages/", " at 0xffffffff", "hf_", "/home/a", "key: ",
    "api_key: ", "\\\\a", "secret=", "secret='", "--key=", "--key ", "?token=", "&a", "-----BEGIN A-----",
    "-----END A-----",
    "aaaa ", "authorization: ", "bearer ", "cookie:", "a:", "1:", "::", "a.b:11", "a.", "://a:11", "fe80:", "AIza",
    "0a:", "SK", "AKC", "AP0", "0-us1", "11111111:", "M.", "MN", "A_KEY=", "https://hooks", "https://a/hook", "hook/",
    "webhooks/", "://a:", "-u a:",
)  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_as_the_text_does(unit: str) -> None:
    """A quadratic rule takes 16 times as long for four times the text."""

    def seconds(characters: int) -> float:
        text = (unit * (characters // len(unit) + 1))[:characters]
        began = time.process_time()
        for work in (private, revealing, shareable):
            list(work(text))
        return time.process_time() - began

    seconds(1000)
    short, long = min(seconds(4_000) for _ in range(2)), min(seconds(16_000) for _ in range(2))
    assert long < 8 * short + 0.02


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("see:a_secret_token=AAAABBBBCCCCDDDD", "see:a_secret_token=<masked>"),
        ("'api-key' : 'AAAABBBBCCCCDDDD'", "'api-key' : '<masked>'"),
        ("from joe.doe+x@mail.example.org.", "from <address>."),
        ("Bearer eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM.abc_-9", "Bearer <masked>"),
    ],
)
def test_secrets_are_masked(text: str, kept: str) -> None:
    assert private(text) == kept
