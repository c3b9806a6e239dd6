"""Which TCP ports the processes of a launch listen on.

Owns the answer to "whose port is this". A server is started with port 0, so that the kernel gives
it a free one that no other process can have; the port is then read off the server's own socket.
Finding a free port by binding and releasing it would leave a gap for another to take it, and a
fixed one could be shared through SO_REUSEPORT.
"""

from __future__ import annotations

from collections.abc import Iterable

import psutil


def listening_ports(processes: Iterable[psutil.Process]) -> list[int]:
    """Ports that these processes listen on, in the order of the processes, each once."""
    ports: dict[int, None] = {}
    for process in processes:
        try:
            connections = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        ports |= {
            connection.laddr.port: None
            for connection in connections
            if connection.status == psutil.CONN_LISTEN and connection.laddr
        }
    return list(ports)


def is_listened_on(port: int) -> bool:
    """Whether any process on this machine listens on a TCP port."""
    return any(
        connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        for connection in psutil.net_connections(kind="tcp")
        if connection.laddr
    )
