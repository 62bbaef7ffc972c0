"""The content of `/metrics`: counts of the index at the time of the request, and of the requests to this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ...store.index import Index
from .disk import Disk, DiskState

#: Bounds of the buckets of requests, in seconds: a stream of events lasts an hour.
_SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 900.0)


class Metrics(Collector):
    """The metrics of one server. ``registry`` has them all."""

    def __init__(self, index: Index, disk: Disk) -> None:
        self._index, self._disk = index, disk
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._requests = Counter(
            "fxminify_requests", "Requests that were answered.", ["route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "fxminify_request_seconds", "Seconds to the end of an answer.", ["route"], buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request of a route, by its name, was answered; an empty name is no route."""
        self._requests.labels(route or "none", str(status)).inc()
        self._seconds.labels(route or "none").observe(seconds)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: with it the registry need not read the index to know the names."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Counts in the index. Raises `fxminify.store.errors.StoreError` where it does not answer."""
        totals = self._index.bugs.totals()
        bugs = GaugeMetricFamily("fxminify_bugs", "Bugs with captures, by what was said of them.", labels=["status"])
        for status, number in totals.bugs.items():
            bugs.add_metric([status.value], number)
        yield bugs
        yield GaugeMetricFamily("fxminify_captures", "Captures that are stored.", totals.captures)
        yield GaugeMetricFamily("fxminify_occurrences", "Occurrences of all captures.", totals.occurrences)
        tasks = GaugeMetricFamily("fxminify_tasks", "Tasks, by state.", labels=["state"])
        for state, number in self._index.tasks.counts().items():
            tasks.add_metric([state.value], number)
        yield tasks
        yield GaugeMetricFamily("fxminify_workers", "Workers that are alive.", len(self._index.tasks.workers()))
        disk = GaugeMetricFamily("fxminify_disk", "1 for the state of the disk.", labels=["state"])
        now = self._disk.state()
        for each in DiskState:
            disk.add_metric([each.value], int(each is now))
        yield disk
