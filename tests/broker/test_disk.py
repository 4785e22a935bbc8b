"""The disk threads: what they were given is let go when it is done."""

import asyncio
import weakref

from chronik.broker.disk import Disk


class Bytes:
    """Something that a job writes."""

    def write(self) -> str:
        return "written"


def test_a_thread_that_waits_holds_nothing_of_its_last_job() -> None:
    """Else the buffers of large writes stay in memory until as many more writes have come."""

    async def scenario() -> None:
        disk = Disk(asyncio.get_running_loop(), workers=1)
        data = Bytes()
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        weakref.finalize(data, loop.call_soon_threadsafe, gone.set)
        assert await disk.run(data.write) == "written"
        del data
        await asyncio.wait_for(gone.wait(), 10)
        disk.close()

    asyncio.run(scenario())


def test_an_error_travels_to_whoever_waits_and_the_thread_goes_on() -> None:
    async def scenario() -> None:
        disk = Disk(asyncio.get_running_loop(), workers=1)

        def fails() -> None:
            raise OSError(5, "the disk is gone")

        outcomes = await asyncio.gather(disk.submit(fails), return_exceptions=True)
        assert [str(one) for one in outcomes] == ["[Errno 5] the disk is gone"]
        assert await disk.run(lambda: 7) == 7
        disk.close()

    asyncio.run(scenario())
