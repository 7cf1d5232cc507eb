"""A backend for tests of processes, in a module of its own: what a worker process imports takes most of its time."""

import _thread
import asyncio
import os
from pathlib import Path

from bamas_lite import SimulatedLLM
from bamas_lite.llm import RunStopped


class NoMoreMoney(RunStopped):
    """As a cap or a wrong key: a subclass of one message."""


class Slow:
    """The simulator, but it waits as a network does, and writes down in `folder` what happens: processes share files.

    `at` is the task at whose first call something `happens`: "stop", "interrupt", or once "die".
    """

    def __init__(self, folder, at="", happens="stop", seconds=0.005):
        self.inner, self.name = SimulatedLLM(), "simulated"
        self.bound_prompt_tokens = self.inner.bound_prompt_tokens
        self.folder, self.at, self.happens, self.seconds = Path(folder), at, happens, seconds

    async def complete(self, llm, messages, **options):
        with (self.folder / f"calls-{os.getpid()}").open("a") as file:
            file.write("started\n")
        if options["task"].task_id == self.at:
            if self.happens == "die" and first(self.folder / "died"):
                os._exit(9)
            if self.happens == "interrupt" and first(self.folder / "interrupted"):
                _thread.interrupt_main()
            if self.happens == "stop":
                await asyncio.sleep(self.seconds)
                raise NoMoreMoney("no more money")
        await asyncio.sleep(self.seconds)
        with (self.folder / f"calls-{os.getpid()}").open("a") as file:
            file.write("finished\n")
        return await self.inner.complete(llm, messages, **options)

    async def aclose(self):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        with (self.folder / f"calls-{os.getpid()}").open("a") as file:
            file.write(f"closed beside {len(others)}\n")


def first(file):
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def calls(folder, what):
    return sum(file.read_text().splitlines().count(what) for file in Path(folder).glob("calls-*"))


class Deadly(Slow):
    async def complete(self, *args, **options):
        os._exit(9)
