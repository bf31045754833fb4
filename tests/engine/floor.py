"""A shop floor for tests: a real storage, real workers in files, and a host that can be stopped and started again."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from shopfloor.engine import RunEngine
from shopfloor.log import Event, Masking, RunCompleted, decode
from shopfloor.ports import CallResult, Logs, RunItem, RunRequest
from shopfloor.record import Storage, read
from shopfloor.wiring import Office, Workers, local_engine, local_office, local_shop

PATIENCE = 30.0


class Floor:
    """Where the tests' workers live, and what their runs left."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self.storage = storage
        self.folder = folder

    def worker(self, slug: str, yaml: str, **prompts: str) -> str:
        """Writes a worker; gives its slug."""
        home = self.folder / slug
        (home / "prompts").mkdir(parents=True, exist_ok=True)
        (home / "worker.yaml").write_text(textwrap.dedent(yaml))
        for name, text in prompts.items():
            (home / "prompts" / f"{name}.md").write_text(text)
        return slug

    def python(self, slug: str, source: str) -> str:
        """Writes a worker in Python; gives its slug."""
        home = self.folder / slug
        home.mkdir(parents=True, exist_ok=True)
        (home / "worker.py").write_text(textwrap.dedent(source))
        return slug

    def events(self, run_id: str) -> list[Event]:
        path = self.storage.log_path(run_id)
        return [decode(entry.raw) for entry in read(path, report=_no_problem)] if path.exists() else []

    def outcome(self, run_id: str) -> RunCompleted | None:
        events = self.events(run_id)
        ended = [event.payload for event in events if isinstance(event.payload, RunCompleted)]
        assert len(ended) <= 1
        assert not ended or events[-1].payload is ended[0]
        return ended[0] if ended else None

    @asynccontextmanager
    async def open(
        self,
        *,
        slots: int = 4,
        office_of: Callable[[Office], Office] = lambda office: office,
        logs_of: Callable[[Logs], Logs] = lambda logs: logs,
        mask: Masking | None = None,
        **options: Any,
    ) -> AsyncGenerator[Shift]:
        """A host at work, until the context is left; `office_of` and `logs_of` put adapters of a test around ours."""
        workers = Workers(folders=(self.folder,), slots=slots)
        async with AsyncExitStack() as opened:
            office = office_of(await opened.enter_async_context(local_office(self.storage)))
            shop = opened.enter_context(local_shop(self.storage, bus=office.bus, alone=False, mask=mask))
            shop = msgspec.structs.replace(shop, logs=logs_of(shop.logs))
            engine = await opened.enter_async_context(local_engine(office, workers, shop=shop, **options))
            await office.ingest.catch_up(everything=True)
            async with anyio.create_task_group() as tasks:
                from shopfloor.engine import keep, take_over

                await take_over(self.storage, office.queue)
                tasks.start_soon(engine.scheduler.run)

                async def keeper() -> None:
                    await keep(self.storage, office.store, office.queue, office.ingest, engine.resumption)

                tasks.start_soon(keeper)
                yield Shift(self, office, engine)
                tasks.cancel_scope.cancel()
            await office.ingest.catch_up()


class Shift:
    """A host at work, and what can be asked of it."""

    def __init__(self, floor: Floor, office: Office, engine: RunEngine) -> None:
        self.floor = floor
        self.office = office
        self.scheduler = engine.scheduler
        self.service = engine.service

    async def dispatch(self, worker: str, **given: Any) -> str:
        return await self.service.dispatch(RunRequest(worker=worker, input=given))

    async def answer(self, run_id: str, call_id: str, result: Any) -> None:
        await self.service.answer(run_id, [CallResult(call_id=call_id, result=result)])

    async def cancel(self, run_id: str, reason: str = "told to") -> None:
        await self.service.cancel(run_id, reason=reason)

    async def until(self, true: Callable[[], Any], what: str = "it") -> Any:
        """Waits until `true` gives something; that."""
        with anyio.move_on_after(PATIENCE):
            while not (found := true()):
                await anyio.sleep(0.01)
            return found
        raise AssertionError(f"{what} did not happen in {PATIENCE:g} s")

    async def ended(self, run_id: str) -> RunCompleted:
        return await self.until(lambda: self.floor.outcome(run_id), f"the end of {run_id}")

    async def result(self, worker: str, **given: Any) -> Any:
        """Runs a worker to its end; what it gave."""
        outcome = await self.ended(await self.dispatch(worker, **given))
        assert outcome.status == "completed", msgspec.to_builtins(outcome)
        return outcome.result

    async def row(self, run_id: str, status: str) -> RunItem:
        """The run as lists show it, once it has that status."""
        item: RunItem | None = None
        with anyio.move_on_after(PATIENCE):
            while True:
                item = await self.office.store.get_run(run_id)
                if item is not None and item.row.status == status:
                    return item
                await anyio.sleep(0.02)
        raise AssertionError(f"{run_id} was not {status} in {PATIENCE:g} s, but {item and item.row.status}")


def _no_problem(problem: object) -> None:
    raise AssertionError(f"the log is not whole: {problem}")
