"""The metrics of all nodes as one text: Ray's agent on each node has those of the replicas there."""

import asyncio
import re
from collections.abc import Sequence

import aiohttp

_TIMEOUT_S = 5.0  # below the 10 s that Prometheus gives a scrape by default
_OURS = ("ray_assay_", "ray_serve_")  # Ray's own, hundreds a node, are at the agents themselves
_COMMENT = re.compile(r"# (?:HELP|TYPE) (\S+)")


async def scrape(addresses: Sequence[str]) -> str:
    """Our metrics and Serve's from the agents at these addresses (host:port), as text of Prometheus' format.

    An agent that doesn't answer in 5 s is left out: one lost node must not hide the others.
    """
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        texts = await asyncio.gather(*(_text(session, address) for address in addresses))
    return merged(texts)


def merged(texts: Sequence[str]) -> str:
    """Several exports as one text: each family of samples once, after its HELP and TYPE lines.

    Prometheus rejects a text whose families aren't contiguous or are described twice, so exports can't be concatenated.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for text in texts:
        about: list[str] = []
        samples: list[str] = []
        name = ""
        for line in text.splitlines():
            if comment := _COMMENT.match(line):
                if comment[1] != name:  # HELP and TYPE of one family follow each other
                    name = comment[1]
                    about, samples = families.setdefault(name, ([], []))
                if line.startswith(_PREFIXES) and line not in about:
                    about.append(line)
            elif line.startswith(_OURS):
                samples.append(line)
    return "".join(f"{line}\n" for about, samples in families.values() if samples for line in (*about, *samples))


_PREFIXES = ("# HELP ray_", "# TYPE ray_")


async def _text(session: aiohttp.ClientSession, address: str) -> str:
    try:
        async with session.get(f"http://{address}/metrics") as answer:
            return await answer.text()
    except (aiohttp.ClientError, TimeoutError):
        return ""
