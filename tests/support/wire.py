"""A wire between a client and a server on this machine, which can go silent and break."""

import socket
import threading
from types import TracebackType
from typing import Self


class Wire:
    """Passes on what comes. What is cut or frozen are the connections of the moment; later ones are well."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: set[socket.socket] = set()
        self.held_back = 0
        """Bytes that came on frozen connections."""

    @property
    def address(self) -> str:
        """Where to connect to."""
        return f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def freeze(self) -> None:
        """From now on nothing comes through, and nobody is told."""
        self._silent.update(end for pair in self._pairs for end in pair)

    def cut(self) -> int:
        """End the connections. Returns how many ends there were."""
        count = 0
        for end in (end for pair in self._pairs for end in pair if end not in self._silent):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended already
                continue
            count += 1
        return count

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for end in (end for pair in self._pairs for end in pair):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:  # the server is closed
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._pairs.append((near, far))
            for start, end in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(start, end), daemon=True).start()

    def _pass_on(self, start: socket.socket, end: socket.socket) -> None:
        try:
            while piece := start.recv(65536):
                if start in self._silent:
                    self.held_back += len(piece)
                else:
                    end.sendall(piece)
            if start not in self._silent:
                end.shutdown(socket.SHUT_WR)
        except OSError:  # cut, or closed at the other end
            return
