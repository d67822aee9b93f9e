"""What an ingress asks of Ray, which may hang."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deploy.ray_serve import ingress


def test_a_call_of_rays_that_hangs_times_out_and_holds_no_thread_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "_STATUS_TIMEOUT_S", 0.05)
    calls, free, threads = [0], threading.Event(), ThreadPoolExecutor(1)

    def hanging() -> None:
        calls[0] += 1
        free.wait(60)

    async def check() -> None:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await ingress._ask(threads, hanging)
        assert not asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
        assert calls == [1]
        free.set()
        assert await ingress._ask(threads, lambda: 7) == 7

    asyncio.run(check())
