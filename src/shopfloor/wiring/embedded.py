"""Everything on this machine: files, SQLite, child processes."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shopfloor.adapters.local import Live, LocalHost, LocalHosts, LocalLogReader, LocalLogs, LocalProcesses
from shopfloor.errors import ResourceLimit, ServerRunning, ServerUnreachable, storage_error
from shopfloor.limits import (
    CLIENT_WAIT_SECONDS,
    EXECUTE_GRACE_SECONDS,
    IDLE_SECONDS,
    LEAVING_SECONDS,
    SERVER_STOP_SECONDS,
)
from shopfloor.log import Delta
from shopfloor.ports import AgentExit, LogReader, Logs, Processes, Projects, ProviderInfo, Queue, Store
from shopfloor.record import AuditLog, Durability, Masking, Storage, lock, open_for_append, refuse_shared, write_private
from shopfloor.version import __version__
from shopfloor.wiring.settings import Workers, low_water_bytes, seconds_setting

if TYPE_CHECKING:
    from shopfloor.client import Address
    from shopfloor.engine import Definition, Duty, Host, Ingest, LocalWorks, Surroundings, Worker
    from shopfloor.server import Services

# What only a server or a list needs is imported where it is needed: a bare run shall not wait for it.


_log = logging.getLogger("shopfloor.wiring")


class Shop(msgspec.Struct, frozen=True):
    """A host with what it works with."""

    host: str
    logs: Logs
    processes: Processes


@contextmanager
def local_shop(
    storage: Storage,
    *,
    durability: Durability = Durability.GROUP,
    mask: Masking | None = None,
    live: Live | None = None,
    alone: bool = True,
) -> Generator[Shop]:
    """Everything on this machine, in this process. `alone`: the process is there for this host's own runs only."""
    with LocalHost(storage, alone=alone) as host:
        logs = LocalLogs(storage, durability=durability, mask=mask, low_water=low_water_bytes(), live=live)
        yield Shop(host.id, logs, LocalProcesses(host))


class Office(msgspec.Struct, frozen=True):
    """The views of a storage, and what keeps them."""

    storage: Storage
    store: Store
    queue: Queue
    ingest: Ingest
    live: Live

    def services(self, works: LocalWorks | None = None, *, allowed_hosts: tuple[str, ...] = ()) -> Services:
        from shopfloor.engine import delete_run
        from shopfloor.server import PAGE_FOLDER, Services, Tokens

        async def delete(run_id: str, *, force: bool) -> list[str]:
            return await delete_run(self.storage, self.store, self.queue, run_id, force=force)

        return Services(
            store=self.store,
            logs=LocalLogReader(self.storage, live=self.live),
            changes=self.ingest,
            tokens=Tokens(self.storage.tokens),
            version=__version__,
            audit=AuditLog(self.storage.audit),
            delete_run=delete,
            works=works,
            providers=find_providers,
            page=PAGE_FOLDER,
            allowed_hosts=allowed_hosts,
            execute_grace_seconds=seconds_setting(
                "SHOPFLOOR_EXECUTE_GRACE", os.environ.get("SHOPFLOOR_EXECUTE_GRACE"), EXECUTE_GRACE_SECONDS
            ),
            client_wait_seconds=seconds_setting(
                "SHOPFLOOR_CLIENT_WAIT", os.environ.get("SHOPFLOOR_CLIENT_WAIT"), CLIENT_WAIT_SECONDS
            ),
        )


@asynccontextmanager
async def local_office(storage: Storage) -> AsyncGenerator[Office]:
    from shopfloor.adapters.sqlite import SqliteQueue, SqliteStore
    from shopfloor.engine import Ingest, recover

    store = await SqliteStore.open(storage.database)
    try:
        queue = SqliteQueue(store)
        await recover(storage, queue)
        yield Office(storage, store, queue, Ingest(storage, store), Live())
    finally:
        await store.close()


def memory_office(storage: Storage) -> Office:
    """The same with rows and queue in this process's memory; the logs are files."""
    from shopfloor.adapters.memory import MemoryQueue, MemoryStore
    from shopfloor.engine import Ingest

    store = MemoryStore()
    return Office(storage, store, MemoryQueue(store), Ingest(storage, store), Live())


class Works(msgspec.Struct, frozen=True):
    """A host that makes runs, and what asks it to."""

    host: Host
    works: LocalWorks
    warm_up: Callable[[], None]
    """Loads what is slow to load; for a thread of its own."""


@asynccontextmanager
async def local_works(
    office: Office,
    workers: Workers,
    *,
    duty: Duty = "all",
    alone: bool = False,
    idle_seconds: float = IDLE_SECONDS,
    leaving_seconds: float = LEAVING_SECONDS,
    shop: Shop | None = None,
    mask: Masking | None = None,
    script: Path | None = None,
) -> AsyncGenerator[Works]:
    """A host in this process, in a shop that is open already or in one of its own. It begins with its `run`.

    With `script`, that file answers for every model.
    """
    from shopfloor.adapters.models import LocalModels
    from shopfloor.adapters.providers import NAMES, price, provider
    from shopfloor.engine import AgentDesk, Catalogue, Host, LocalWorks, bare_definitions, default_folders

    storage = office.storage
    folders = default_folders(storage.root, workers.folders)
    projects = open_projects(storage).all
    catalogue = Catalogue(folders, workers.modules, bare_definitions(NAMES), projects=projects)
    models = LocalModels() if script is None else LocalModels(script=script, piece_seconds=0)
    reader = LocalLogReader(storage, live=office.live)
    own = nullcontext(shop) if shop else local_shop(storage, mask=mask, live=office.live, alone=alone)
    with own as opened:
        works = LocalWorks(catalogue=catalogue, queue=office.queue, store=office.store, logs=opened.logs, reader=reader)
        agents = AgentDesk(
            provider=provider,
            processes=opened.processes,
            logs=opened.logs,
            reader=reader,
            prices=price,
            env=os.environ,
        )
        host = Host(
            opened.host,
            storage=storage,
            hosts=LocalHosts(storage),
            logs=opened.logs,
            reader=reader,
            queue=office.queue,
            works=works,
            processes=opened.processes,
            models=models,
            agents=agents,
            catalogue=catalogue,
            cwd=str(Path.cwd()),
            slots=workers.slots,
            duty=duty,
            idle_seconds=idle_seconds,
            leaving_seconds=leaving_seconds,
        )
        works.wake, works.take_in = host.wake, host.take_in
        works.check = agents.check
        try:
            yield Works(host, works, models.warm_up)
        finally:
            await models.aclose()


def open_projects(storage: Storage) -> Projects:
    from shopfloor.adapters.local import LocalProjects

    return LocalProjects(storage)


def log_reader(office: Office) -> LogReader:
    """The logs of a storage, as they are written in this process or in others."""
    return LocalLogReader(office.storage, live=office.live)


@contextmanager
def streamed(office: Office, run_id: str) -> Generator[Callable[[], list[Delta]]]:
    """Every piece of a message that a run in this process streams from now on; each call gives the new ones."""
    with office.live.listen(run_id, deltas=True) as listener:
        yield lambda: listener.take(sys.maxsize, {})


def provider_names() -> tuple[str, ...]:
    """Whom a task can be handed to without any worker."""
    from shopfloor.adapters.providers import API_KEYS, NAMES

    return (*NAMES, *API_KEYS)


def surroundings(workers: Iterable[Worker]) -> Surroundings:
    """What a definition is checked against here: the models, agents and workers that a run would find."""
    from shopfloor.adapters.models import LocalModels
    from shopfloor.adapters.providers import NAMES, price, provider
    from shopfloor.engine import Surroundings, bare_definitions, check_order

    found: dict[str, Definition | None] = {one.slug: one for one in bare_definitions(NAMES)}
    for worker in workers:
        found[worker.definition.slug] = None if worker.problems else worker.definition
    return Surroundings(
        check_model=LocalModels().check,
        check_agent=partial(check_order, provider, prices=price, env=os.environ),
        workers=found,
    )


def find_providers() -> list[ProviderInfo]:
    """What this machine has of them. It takes a second or two: every program is asked for its version."""
    from shopfloor.adapters.providers import found_providers

    return found_providers(os.environ, Path.home())


def transcript_of(
    provider: str, chunks: Iterable[bytes], *, source: str | None, ended: AgentExit | None, resumed: bool | None = None
) -> Iterator[bytes]:
    """The lines of the transcript of what an agent printed. `resumed` is None where that is not known."""
    from shopfloor.adapters.providers import normaliser, price
    from shopfloor.engine import transcribed

    lines = normaliser(provider, resumed=resumed)
    return transcribed(provider, lines, chunks, prices=price, source=source, ended=ended)


@contextmanager
def the_one_server(storage: Storage) -> Generator[None]:
    """Holds the storage's place for a server; the lock goes with the process, whatever ends it."""
    refuse_shared(storage.root)
    try:
        descriptor = open_for_append(storage.server_lock)
    except OSError as error:
        raise storage_error(error, f"cannot write {storage.server_lock}") from error
    try:
        if not lock(descriptor):
            raise ServerRunning(f"a server is already running on {storage.root}", hint=_how_to_use_it(storage))
        # What a server that was killed has left is not the address of this one.
        storage.server_address.unlink(missing_ok=True)
        try:
            yield
        finally:
            storage.server_address.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _how_to_use_it(storage: Storage) -> str:
    from shopfloor.client import find_server

    address = find_server(storage, named=False)
    there = f"it is at {address.url}; `shopfloor login` prints a link to log in" if address else "use that one"
    return f"{there}, or name another --storage"


async def _warm_up(load: Callable[[], None]) -> None:
    """Load what is slow to load. A failure is for the run that needs it, not for the server.

    Without memory, modules may be left half loaded: then the server ends.
    """
    import anyio.to_thread

    try:
        await anyio.to_thread.run_sync(load, abandon_on_cancel=True)
    except MemoryError as error:
        raise ResourceLimit(
            "the server ran out of memory while it loaded its parts", hint="give it more, then start it again"
        ) from error
    except Exception as error:  # noqa: BLE001 - for example without memory, or without descriptors
        _log.warning("cannot load ahead of time: %s: %s", type(error).__name__, error)


async def serve_storage(
    storage: Storage,
    *,
    host: str,
    port: int,
    workers: Workers | None = None,
    allowed_hosts: tuple[str, ...] = (),
    keep_seconds: float | None = None,
    on_started: Callable[[str, str], None],
) -> None:
    """`shopfloor up`: all roles in one process, until it is told to stop. `on_started` gets the URL and the token."""
    import anyio

    from shopfloor.client import Address
    from shopfloor.engine import finish_deletions, keep, keep_until_lost, take_over
    from shopfloor.server import Tokens, create_app, serve, serving_limits

    workers = workers or Workers()
    limits = serving_limits(workers.slots)
    lost: list[Exception] = []

    with the_one_server(storage):
        token = Tokens(storage.tokens).admin_token()
        open_projects(storage).add(str(Path.cwd()))

        def started(url: str) -> None:
            # A server in a thread is a part of a program, which `shopfloor down` must not end.
            pid = os.getpid() if threading.current_thread() is threading.main_thread() else None
            write_private(storage.server_address, msgspec.json.encode(Address(url, token, pid)))
            on_started(url, token)

        async with local_office(storage) as office, local_works(office, workers) as works:
            await finish_deletions(storage, office.store, office.queue)
            await take_over(storage, office.queue, works.host.refusal)
            await office.queue.show_queued()
            async with anyio.create_task_group() as tasks:

                async def keeper() -> None:
                    kept = (storage, office.store, office.queue, office.ingest)
                    resuming = {"go_on": works.host.adopt, "refusal": works.host.refusal}
                    upkeep = partial(keep, *kept, keep_seconds=keep_seconds, **resuming)
                    lost.append(await keep_until_lost(office.store, works.host, upkeep))
                    tasks.cancel_scope.cancel()

                tasks.start_soon(works.host.run)
                tasks.start_soon(keeper)
                tasks.start_soon(_warm_up, works.warm_up)
                app = create_app(office.services(works.works, allowed_hosts=allowed_hosts))
                await serve(app, host, port, started, limits, on_signal=works.host.watchdog.request_stop)
                tasks.cancel_scope.cancel()
            if lost:
                raise lost[0]
            # What the last runs wrote while they were being left is listed too.
            await office.ingest.catch_up()


class ServerThread:
    """A server in a thread of this process, on a free port: whatever loop its clients run on, it has its own."""

    def __init__(self, storage: Storage, workers: Workers) -> None:
        self._storage = storage
        self._workers = workers
        self._started = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._address: Address | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="shopfloor-server", daemon=True)

    def start(self) -> Address:
        """Where it listens, once it does."""
        self._thread.start()
        self._started.wait()
        if self._address is None:
            raise self._error or ServerUnreachable("the server in this process did not start")
        # At the end of the process it still writes what there is to write.
        atexit.register(self._end)
        return self._address

    def _serve(self) -> None:
        import anyio

        try:
            anyio.run(self._until_stopped, backend_options={"use_uvloop": True})
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start is told
            self._error = error
        finally:
            self._started.set()

    async def _until_stopped(self) -> None:
        import anyio
        import anyio.from_thread

        from shopfloor.client import Address

        async with anyio.from_thread.BlockingPortal() as portal, anyio.create_task_group() as tasks:

            def started(url: str, token: str) -> None:
                self._address = Address(url, token)
                self._stop = lambda: portal.call(tasks.cancel_scope.cancel)
                self._started.set()

            await serve_storage(self._storage, host="127.0.0.1", port=0, workers=self._workers, on_started=started)

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._stop()
        self._thread.join(SERVER_STOP_SECONDS)

    async def stop(self) -> None:
        import anyio.to_thread

        atexit.unregister(self._end)
        await anyio.to_thread.run_sync(self._end)
