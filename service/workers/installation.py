"""The labels (`fxminify.store.index.queue`) and the versions of a worker on this installation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ...store.index import queue, trust
from ...store.index.installations import OTHERS, label_of


class NotServing(Exception):
    """This installation cannot say what it serves. The message is for the user."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The labels of a worker, and the versions of torch and of the package of each backend, by backend."""

    labels: frozenset[str]
    versions: Mapping[str, Mapping[str, str]]


def serving() -> Serving:
    """Asks a process that imports torch. Raises `NotServing`."""
    command = [sys.executable, "-m", "fxminify.backends.provenance.serves"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not answers:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise NotServing(f"torch cannot be imported here, so that no task can be served: {said}")
    found = json.loads(answers[-1])
    out = {queue.label(queue.TORCH, queue.minor(found["torch"]))}
    out |= {queue.label(queue.DEVICE, kind) for kind in found["devices"]}
    out |= {queue.label(queue.BACKEND, name) for name in found["backends"]}
    if own := trust.maker():
        out.add(queue.label(queue.MAKER, own))
    torch = {"torch": str(found["torch"])}
    versions = {OTHERS: torch} | {name: torch | package for name, package in found["backends"].items()}
    return Serving(frozenset(out | {label_of(each) for each in versions.values()}), versions)
