"""Finds the processes of a command, its Ray's workers included, which aren't its descendants."""

import math

import psutil

from actors.engine.fork_server import SWITCH
from pipelines.run.runtime.private_ray import ray_worker


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process's descendants, the workers of its Ray with their fork server, and what the tests' fork server forked for it.

    Empty if it has ended.
    """
    try:
        below = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    members = {member.pid: member for member in below}
    # A raylet's workers exist after it: a command that has none is only starting, and most of the machine's other processes
    # needn't be read. Tests call this again and again until an engine is there, which took half of their processor.
    raylets = [member for member in below if name(member) == "raylet"]
    began = min((_start_of(raylet) for raylet in raylets), default=math.inf)
    for server in psutil.process_iter():
        if _start_of(server) >= began and ray_worker.__file__ in title(server) and _raylet_of(server) in members:
            members |= {member.pid: member for member in (server, *_children(server))}
    return [*members.values(), *_forked_for(process)]


def _forked_for(process: psutil.Process) -> list[psutil.Process]:
    """What the tests' fork server has forked since a process began, if it was given to it and isn't below it."""
    try:
        server, began = process.environ().get(SWITCH, "").partition(":")[0], process.create_time()
        return [child for child in psutil.Process(int(server)).children() if child.create_time() >= began] if server else []
    except psutil.NoSuchProcess:
        return []


def name(process: psutil.Process) -> str:
    """The name of a process; empty if it has ended."""
    try:
        return process.name()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def title(process: psutil.Process) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return ""


def _start_of(process: psutil.Process) -> float:
    """When a process began, as a Unix time; before everything if it has ended."""
    try:
        return float(process.create_time())
    except psutil.Error:
        return -math.inf


def _raylet_of(server: psutil.Process) -> int | None:
    try:
        return int(server.environ()["RAY_RAYLET_PID"])
    except (psutil.Error, OSError, KeyError):
        return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
