"""Run a command in namespaces of its own: ``python -I -S namespaces.py PLAN COMMAND...``.

PLAN is JSON: pairs of a verb and an absolute path, in order. ``hide`` puts an empty directory over one, ``show`` makes
something visible again in a hidden one, ``write`` also lets it be written, ``device`` keeps it in the new ``/dev``. All
else of the file system is read-only, and there is no network. The process becomes the command: number, parent, and
descriptors stay. It must have one thread, so it is a process of its own that imports nothing but the standard library.

The command has no capabilities, not even as root, and cannot get any (see ``namespaces(7)``, ``user_namespaces(7)``):
mounts that it inherits are locked in any namespace that it makes. With an empty PLAN it stays in the namespaces that it
is in, for a program that has made them.

In both cases a filter of system calls (``seccomp(2)``) refuses what no namespace separates: keys of the session
(``keyrings(7)``) and sockets of the file system, which a read-only mount does not stop. Pairs of connected sockets
are allowed, rings of asynchronous calls are not, because no filter sees their calls.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import stat
import struct
import sys

_NEW_USER, _NEW_MOUNTS, _NEW_NETWORK, _NEW_IPC = 0x10000000, 0x00020000, 0x40000000, 0x08000000
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 4096, 16384, 1 << 18, 2, 4
_MOUNT_SETATTR, _AT_RECURSIVE, _ATTR_RDONLY = 442, 0x8000, 1
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_PR_SET_SECCOMP, _FILTER = 22, 2
#: By machine: its number in ``linux/audit.h``, and the numbers of ``socket``, and of the calls that are refused.
_CALLS = {
    "x86_64": (0xC000003E, 41, (248, 249, 250)),  # add_key, request_key, keyctl
    "aarch64": (0xC00000B7, 198, (217, 218, 219)),
}
_IO_URING_SETUP = 425
#: Instructions of the filter (``linux/bpf_common.h``): load a word, jump if equal, jump if at least, return.
_LOAD, _EQUAL, _LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
#: Results of the filter: allow, end the process, or fail with an error number.
_ALLOW, _END, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
#: Where the number of the call, the machine and the first argument lie (``linux/seccomp.h``).
_NUMBER, _MACHINE, _FIRST = 0, 4, 16
#: From this number on, x86_64 has another form of the same calls.
_OTHER_FORM = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter(plan: list[tuple[str, str]]) -> None:
    """Put this process into namespaces of its own. Raises `OSError` where the system does not allow that."""
    user, group, directory = os.geteuid(), os.getegid(), os.getcwd()
    _call("unshare", _LIBC.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_NETWORK | _NEW_IPC))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    _loopback()
    _mount("none", "/", _MS_REC | _MS_PRIVATE)
    kept = {path: os.open(path, os.O_PATH) for verb, path in plan if verb != "hide"}
    _read_only("/", set_=True, flags=_AT_RECURSIVE)
    _devices([(path, kept[path]) for verb, path in plan if verb == "device"])
    for verb, path in plan:
        if verb == "hide":
            os.makedirs(path, exist_ok=True)
            _mount("tmpfs", path, _MS_NOSUID | _MS_NODEV, "tmpfs", "mode=0700")
        elif verb != "device":
            _bind(kept[path], path)
            if verb == "write":
                _read_only(path, set_=False)
    for descriptor in kept.values():
        os.close(descriptor)
    os.chdir(directory)  # again: by the old one `..` leads to what is hidden
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break


def refuse_calls() -> None:
    """Refuse the system calls of the module docstring, here and in every child. Raises `OSError`."""
    _call("prctl", _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    instructions = _filter(os.uname().machine)
    buffer = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
    program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(buffer))
    _call("seccomp", _LIBC.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0))


def _filter(machine: str) -> list[tuple[int, int, int, int]]:
    """Instructions as of ``struct sock_filter``: code, how many to skip if true, if false, and a number."""
    if machine not in _CALLS:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {machine}")
    audit, socket_, refused = _CALLS[machine]
    tests = [(_EQUAL, number, errno.EPERM) for number in refused]
    tests += [(_LEAST, _OTHER_FORM, errno.EPERM), (_EQUAL, _IO_URING_SETUP, errno.ENOSYS)]
    found = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _END), (_LOAD, 0, 0, _NUMBER)]
    for code, number, error in tests:
        found += [(code, 0, 1, number), (_RETURN, 0, 0, _ERROR | error)]
    found += [(_EQUAL, 1, 0, socket_), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _FIRST)]
    return [*found, (_EQUAL, 0, 1, socket.AF_UNIX), (_RETURN, 0, 0, _ERROR | errno.EACCES), (_RETURN, 0, 0, _ALLOW)]


def _devices(kept: list[tuple[str, int]]) -> None:
    """A ``/dev`` with these devices and an empty ``shm``."""
    _mount("tmpfs", "/dev", _MS_NOSUID, "tmpfs", "mode=0755")
    for path, descriptor in kept:
        _bind(descriptor, path)
    os.mkdir("/dev/shm")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
    os.symlink("/proc/self/fd", "/dev/fd")


def _loopback() -> None:
    """Begin to serve the addresses of this machine, which is another one for the command than for all others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _IFF_UP))


def _bind(descriptor: int, path: str) -> None:
    """Mount what ``descriptor`` stands for at ``path``, with the attributes that its mount has now."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    _mount(f"/proc/self/fd/{descriptor}", path, _MS_BIND | _MS_REC)


def _mount(source: str, target: str, flags: int, kind: str = "", data: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    code = _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None)
    _call(f"mount on {target}", code)


def _read_only(path: str, *, set_: bool, flags: int = 0) -> None:
    """Set or clear the read-only attribute of the mount at ``path``."""
    attributes = struct.pack("QQQQ", _ATTR_RDONLY * set_, _ATTR_RDONLY * (not set_), 0, 0)
    size = ctypes.c_size_t(len(attributes))
    _call("mount_setattr", _LIBC.syscall(_MOUNT_SETATTR, -100, path.encode(), flags, attributes, size))


def _call(what: str, code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def main(argv: list[str]) -> None:
    try:
        if plan := json.loads(argv[1]):
            enter(plan)
        refuse_calls()
    except OSError as error:
        sys.exit(f"this system gives no namespaces of its own to a process: {error}")
    os.execv(argv[2], argv[2:])


if __name__ == "__main__":
    main(sys.argv)
