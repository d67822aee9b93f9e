"""Finds the processes of a command, its Ray's workers included, which aren't its descendants."""

import psutil

from pipelines.runtime.private_ray import ray_worker


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process's descendants, and the workers of its Ray with their fork server; empty if it has ended."""
    try:
        below = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    members = {member.pid: member for member in below}
    for server in psutil.process_iter():
        if ray_worker.__file__ in title(server) and _raylet_of(server) in members:
            members |= {member.pid: member for member in (server, *_children(server))}
    return list(members.values())


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
