"""Where the parts of a run are computed: in this process, in worker processes, or on a Dask cluster.

Rows are the same everywhere; they travel back as Arrow tables and the caller saves them. A part that was lost with a
worker is computed again. One that ends the run ends it everywhere: the others start nothing more, wait for their calls
in flight, and what is whole is saved.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa

from bamas_lite.inputs import shown
from bamas_lite.llm import RunStopped
from bamas_lite.parts import Part, Save, Stopped, compute

MOST_LOSSES = 3
"""Times that lost parts are computed again before the run is given up."""

NO_WORKER_S = 60.0
"""Seconds without any worker after which a run on a cluster says so."""

_EARLY = ("a worker process ended early; a script that uses workers > 1 must start its work below "
          "`if __name__ == '__main__':`, and it must be a file")

_Outcome = tuple[pa.Table | None, RunStopped | None]
"""What comes back from a worker: the rows of a part; or what ended the run there; or neither, if it ended elsewhere."""


def check_scheduler(scheduler: Any) -> None:
    """Make sure that `scheduler` is a connected Dask client; Dask is not imported for that.

    Raises:
        ValueError: it is something else.
    """
    distributed = sys.modules.get("distributed")  # whoever has a client has imported it
    if distributed is None or not isinstance(scheduler, distributed.Client):
        raise ValueError(f"scheduler = {shown(scheduler)}: expected None (this machine) or a distributed.Client, which "
                         "the extra [cluster] installs: pip install 'bamas-lite[cluster]'")
    if scheduler.asynchronous or scheduler.status != "running":
        state = "asynchronous" if scheduler.asynchronous else scheduler.status
        raise ValueError(f"scheduler = {shown(scheduler)}: the client is {state}; expected one that is connected and "
                         "not asynchronous: distributed.Client(address)")


def other_hosts(client: Any) -> list[str]:
    """Names of the machines, other than this one, on which a Dask client has workers."""
    names = client.run(platform.node, on_error="ignore") or {}
    return sorted(set(names.values()) - {platform.node()})


# --- worker processes ---

def in_processes(parts: Sequence[Part], workers: int, concurrency: int, save: Save) -> None:
    """Compute parts in worker processes.

    Raises:
        RunStopped: a part ended the run, or workers died again and again.
    """
    context = get_context("spawn")
    stopped, started = context.Event(), context.Event()

    def stop(futures: Sequence[Any]) -> None:
        stopped.set()
        for future in futures:
            future.cancel()  # does nothing to those that run

    for _ in range(1 + MOST_LOSSES):
        with worker_processes(min(workers, len(parts)), _in_worker, (stopped, started)) as processes:
            parts = _collect(parts, lambda part: processes.submit(_part_in_process, part, concurrency), save,  # noqa: B023
                             stop, BrokenProcessPool)
        if not parts:
            return
        if not started.is_set():
            raise RunStopped(_EARLY)
    raise RunStopped("worker processes died again and again (too little memory?)")


@contextmanager
def worker_processes(n: int, initializer: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
                     ) -> Iterator[ProcessPoolExecutor]:
    """`n` processes that end with this one; what waits is not run any more when the block is left by an exception.

    Raises:
        RuntimeError: a process ended early.
    """
    # Threads of the parent (BLAS, Jupyter) do not survive a fork; a spawned process starts clean everywhere.
    with ProcessPoolExecutor(n, mp_context=get_context("spawn"), initializer=_begin,
                             initargs=(initializer, arguments)) as processes:
        try:
            yield processes
        except BrokenProcessPool:
            raise RuntimeError(_EARLY) from None
        except BaseException:  # Ctrl-C too: without this, leaving the block would first run all parts that wait
            processes.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(initializer: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """Make this worker end when its parent is killed: it would wait for work for ever."""
    def wait() -> None:
        parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    if initializer is not None:
        initializer(*arguments)


_stop: Any = None
"""In a worker process: the event that ends the run."""


def _in_worker(stop: Any, started: Any) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the run in good order
    if os.name == "posix":  # elsewhere a process is ended without being asked
        signal.signal(signal.SIGTERM, _leave)
    started.set()


_at_work = _leaving = False


def _leave(*_: Any) -> None:
    """SIGTERM, which all workers get when one of them died: calls in flight are paid for, so they come first."""
    global _leaving
    _leaving = True
    if not _at_work:
        os._exit(1)


def _part_in_process(part: Part, concurrency: int) -> _Outcome:
    global _at_work
    _at_work = True
    try:
        return _outcome(part, concurrency, lambda: _leaving or _stop.is_set())
    finally:
        _at_work = False
        if _leaving:  # nobody reads the outcome, and the one that died may have the lock of the way back
            os._exit(1)


# --- Dask ---

def on_cluster(client: Any, parts: Sequence[Part], concurrency: int, save: Save) -> None:
    """Compute parts on the workers of a Dask client.

    Dask itself runs a part again whose worker is gone; how often, its configuration says
    (distributed.scheduler.allowed-failures, 3 by default).

    Raises:
        RunStopped: a part ended the run, took too many workers with it, or the cluster is gone.
    """
    from distributed import CancelledError, Event, KilledWorker

    name = f"bamas-lite-{uuid.uuid4().hex}"
    event, patience = Event(name, client=client), _Patience(client)

    def stop(futures: Sequence[Any]) -> None:
        with suppress(Exception):  # the cluster may be gone
            event.set()
            running = {key for keys in client.processing().values() for key in keys}
            client.cancel([future for future in futures if future.key not in running])

    try:
        lost = _collect(parts, lambda part: client.submit(_part_on_cluster, part, concurrency, name, pure=False),
                        save, stop, KilledWorker, patience.check)
    except CancelledError as error:
        raise RunStopped(f"the cluster gave up parts of the run, or is gone: {error}") from error
    finally:
        with suppress(Exception):  # the cluster may be gone
            event.clear()
    if lost:
        raise RunStopped(f"workers of the cluster died again and again with the same {len(lost)} parts (too little "
                         "memory?)")


class _Patience:
    """Says once that a run waits for workers: Dask itself waits for ever, without a word."""

    def __init__(self, client: Any) -> None:
        self._client, self._asked, self._since = client, time.monotonic(), None

    def check(self) -> None:
        """Called again and again while nothing happens."""
        now = time.monotonic()
        if self._asked is None or now - self._asked < NO_WORKER_S / 6:
            return
        self._asked = now
        with suppress(OSError):  # a cluster that is gone cancels its parts by itself
            if self._client.scheduler_info()["workers"]:
                self._since = None
                return
        self._since = self._since or now
        if now - self._since >= NO_WORKER_S:
            self._asked = None
            warnings.warn(f"the cluster has had no worker for {NO_WORKER_S:g} s; the run goes on as soon as it has one "
                          "(Ctrl-C ends it, and keeps what is saved)", RuntimeWarning, stacklevel=2)


def _part_on_cluster(part: Part, concurrency: int, name: str) -> _Outcome:
    from distributed import Event, get_client

    event = Event(name, client=get_client())
    stopped, over = threading.Event(), threading.Event()
    if event.is_set():
        return None, None

    def watch() -> None:  # asking takes a message to the scheduler and back: too long for an event loop
        with suppress(Exception):  # the scheduler may be gone
            while not (over.is_set() or stopped.is_set()):
                if event.wait(timeout=1):
                    stopped.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        return _outcome(part, concurrency, stopped.is_set)
    finally:
        over.set()


# --- both ---

def _outcome(part: Part, concurrency: int, stopped: Callable[[], bool]) -> _Outcome:
    """Compute a part; what ends the run is a value: exceptions that leave a worker are retried, logged or cut."""
    tables: list[pa.Table] = []
    try:
        compute([part], concurrency, lambda _, table: tables.append(table), lambda: None, stopped)
    except Stopped:
        return None, None
    except RunStopped as error:
        return None, error
    return tables[0], None


def _collect(parts: Sequence[Part], submit: Callable[[Part], Any], save: Save,
             stop: Callable[[Sequence[Any]], None], lost: type[Exception], idle: Callable[[], None] = lambda: None
             ) -> list[Part]:
    """Save parts as they are done; returns those that were lost with their workers.

    After the first failure, or Ctrl-C, `stop` gets the futures that are not done, and cancels those that do not run;
    the others are waited for, and the failure is raised. `idle` is called while nothing happens.
    """
    done: SimpleQueue[Any] = SimpleQueue()
    waiting: dict[Any, Part] = {}
    gone: list[Part] = []
    failure: BaseException | None = None

    def failed(error: BaseException) -> None:
        nonlocal failure
        if failure is None:
            failure = error
            stop(list(waiting))
        elif isinstance(error, KeyboardInterrupt):
            raise error  # the second Ctrl-C: the user does not want to wait

    try:
        for part in parts:
            future = submit(part)
            waiting[future] = part
            future.add_done_callback(done.put)
    except lost:  # a pool of processes takes nothing more once it is broken
        gone.extend(parts[len(waiting):])
    except BaseException as error:
        failed(error)
    while waiting:
        try:
            ready = _ready(done, waiting)
            if not ready:
                idle()
            for future in ready:
                part = waiting.pop(future, None)
                if part is None:
                    continue
                try:
                    table, error = future.result()
                except lost:
                    gone.append(part)
                    continue
                if table is not None:
                    save(part, table)
                elif error is not None:
                    raise error
        except BaseException as error:
            failed(error)
    if failure is not None:
        raise failure
    return gone


def _ready(done: SimpleQueue[Any], waiting: dict[Any, Part]) -> list[Any]:
    """Futures that are done; waits half a second at the most, as on Windows one long wait could not be interrupted."""
    try:
        return [done.get(timeout=0.5)]
    except Empty:  # an interrupt may have come just after one was taken from the queue
        return [future for future in waiting if future.done()]
