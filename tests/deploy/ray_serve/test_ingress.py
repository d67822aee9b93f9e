"""What an ingress asks of Ray, which may hang."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.ray_serve import ingress


def test_a_call_of_rays_that_hangs_times_out_and_holds_no_thread_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "_STATUS_TIMEOUT_S", 0.05)
    endpoint, free = ingress._Endpoint(), threading.Event()
    endpoint._asking = ThreadPoolExecutor(2)

    async def check() -> None:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await endpoint._ask(free.wait)
        assert not asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
        free.set()
        assert await endpoint._ask(lambda: 7) == 7

    asyncio.run(check())
