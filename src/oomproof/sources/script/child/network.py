"""A script has no network while it is followed: it could download gigabytes, or log a training that never ran."""

from __future__ import annotations

import errno
import socket
from typing import Any
from unittest.mock import patch

_refused: list[str] = []


def refuse_network() -> None:
    """For the rest of the process. Sockets within the machine's own files (AF_UNIX) stay: workers talk by them."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def refuse_connect(self: socket.socket, address: Any) -> None:
        if self.family == getattr(socket, "AF_UNIX", None):
            return connect(self, address)
        raise _refusal(address[0] if isinstance(address, tuple) else str(address))

    def refuse_connect_ex(self: socket.socket, address: Any) -> int:
        if self.family == getattr(socket, "AF_UNIX", None):
            return connect_ex(self, address)
        _refusal(address[0] if isinstance(address, tuple) else str(address))
        return errno.ENETUNREACH

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host in (None, "", "localhost", "127.0.0.1", "::1", socket.gethostname()):
            return known(host, *args, **kwargs)
        raise _refusal(host.decode() if isinstance(host, bytes) else str(host), socket.gaierror)

    known = socket.getaddrinfo
    patch.object(socket.socket, "connect", refuse_connect).start()
    patch.object(socket.socket, "connect_ex", refuse_connect_ex).start()
    patch.object(socket, "getaddrinfo", look_up).start()


def list_refused_hosts() -> str:
    """Whom the script wanted to talk to."""
    return ", ".join(dict.fromkeys(_refused[:3]))


def _refusal(host: str, kind: type[OSError] = OSError) -> OSError:
    _refused.append(host)
    return kind(errno.ENETUNREACH, f"no network while oomproof follows this script (wanted: {host})")
