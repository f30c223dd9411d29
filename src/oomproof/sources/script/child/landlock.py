"""Landlock, Linux's way for a process to give up rights of its own: no writing outside of some folders, no TCP.

Where the kernel has it (5.13 and later, TCP from 6.7 on) it also holds for libraries in C and for programs that are
started. Elsewhere nothing happens: Python's own functions are looked after by writes.py and network.py.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
"""numbers of the system calls, the same on every architecture"""
_NO_NEW_PRIVILEGES = 38
_VERSION_FLAG = 1
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGE = sum(1 << place for place in range(4, 13)) | _WRITE_FILE
"""write to files; remove and make files, folders, links, sockets (bits 4 to 12)"""
_REFER_SINCE, _TRUNCATE_SINCE, _TCP_SINCE = 2, 3, 4
_REFER = 1 << 13
_CONNECT = 1 << 1


def allow_writes_only_in(folders: Sequence[str]) -> bool:
    """For the rest of the process and all that it starts; whether the kernel could."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    if version < 1:
        return False
    rights = _CHANGE | (_REFER if version >= _REFER_SINCE else 0) | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    attributes = struct.pack("=QQ", rights, _CONNECT) if version >= _TCP_SINCE else struct.pack("=Q", rights)
    rules = libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if rules < 0:
        return False
    try:
        for folder in folders:
            _allow(libc, rules, folder, rights)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT, rules, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, folder: str, rights: int) -> None:
    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", rights, place), ctypes.c_uint32(0))
    finally:
        os.close(place)
