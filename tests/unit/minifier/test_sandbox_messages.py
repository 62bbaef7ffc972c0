"""The wire: what is sent arrives, and what is no message is refused."""

import socket
import struct
import threading
from typing import Any

import pytest

from fxminify.minifier.sandbox import messages
from fxminify.minifier.sandbox.messages import Answer, Channel, Exited, Mark, ProtocolError, Request, Setup, pair


@pytest.mark.parametrize(
    "message",
    [
        Setup("/tmp/x", None, [], ["/p"], 5),
        Setup("/tmp/x", {"name": "inductor"}, [{"module": "m"}]),
        Request(7, "observe", {"case": {"a": [1, None, "é"]}}, "o", "e"),
        Mark(7, "eager"),
        Answer(7, {"outcome": "pass"}),
        Exited(12, -11),
    ],
)
def test_what_is_sent_arrives(message: Any) -> None:
    ours, theirs = map(Channel, pair())
    ours.send(message)
    assert theirs.receive(1) == message


def test_partial_and_joined_messages_are_told_apart() -> None:
    ours, theirs = pair()
    channel = Channel(theirs)
    data = messages.encode(Mark(1, "build")) + messages.encode(Mark(1, "eager"))
    ours.sendall(data[:9])
    assert channel.receive(0.01) is None
    ours.sendall(data[9:])
    assert [channel.receive(1), channel.receive(1)] == [Mark(1, "build"), Mark(1, "eager")]


def test_a_large_message_arrives() -> None:
    ours, theirs = map(Channel, pair())
    message = Answer(1, {"text": "x" * 5_000_000})
    thread = threading.Thread(target=ours.send, args=(message,))
    thread.start()
    assert theirs.receive(10) == message
    thread.join()


def test_file_descriptors_travel_with_a_message() -> None:
    ours, theirs = map(Channel, pair())
    left, right = pair()
    ours.send(messages.Fork(1), (right.fileno(),))
    message, fds = theirs.receive_with_fds()
    assert message == messages.Fork(1)
    socket.socket(fileno=fds[0]).sendall(b"hello")
    assert left.recv(5) == b"hello"


def test_a_closed_channel_is_the_end() -> None:
    ours, theirs = pair()
    ours.close()
    with pytest.raises(EOFError):
        Channel(theirs).receive(1)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"\xff", "not JSON"),
        (b"[1]", "not a known message"),
        (b'{"type": "Eval", "code": "1"}', "not a known message"),
        (b'{"type": "Mark", "query": "1", "phase": "x"}', "Mark.query is a str, not int"),
        (b'{"type": "Mark", "query": 1, "phase": "x", "more": 1}', "no field 'more'"),
        (b'{"type": "Mark", "query": 1}', "phase"),
        (b'{"type": "Answer", "query": 1, "result": null}', "Answer.result is a NoneType"),
    ],
)
def test_what_is_no_message_is_refused(body: bytes, problem: Any) -> None:
    with pytest.raises(ProtocolError, match=problem):
        messages.decode(body)


def test_a_length_over_the_limit_is_refused_before_it_is_read() -> None:
    ours, theirs = pair()
    ours.sendall(struct.pack(">I", messages.LIMIT + 1))
    with pytest.raises(ProtocolError, match="over the limit"):
        Channel(theirs).receive(1)


def test_a_message_over_the_limit_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LIMIT", 100)
    with pytest.raises(ValueError, match="over the limit of 100"):
        messages.encode(Answer(1, {"text": "x" * 100}))
