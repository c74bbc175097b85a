# SPDX-License-Identifier: Apache-2.0
# The loaded ACL library, and how its codes become exceptions.


@cython.final
cdef class Library:
    """A loaded AscendCL library: where it came from and what it can do. Made by `load_library`."""

    cdef const rt.Library *library

    def __init__(self) -> None:
        raise made_by("load_library")

    cdef int prepare(self) except -1:
        """Before the first call that initialises the library: from then on a fork is one too many."""
        check_fork()
        rt.watch_process()
        return 0

    @property
    def path(self) -> str:
        return os.fsdecode(self.library.path)

    @property
    def capabilities(self) -> dict:
        """Name of each optional capability, and whether the library has it."""
        return {entry.first.decode(): entry.second for entry in self.library.can.list()}

    @property
    def missing(self) -> tuple:
        """The ACL functions that this library lacks; the runtime does without them."""
        return tuple(name.decode() for name in self.library.missing_optional)

    def without(self, *functions: str) -> Library:
        """The same library as if it lacked these functions: how an older release looks to the runtime."""
        cdef vector[string] names = [name.encode() for name in functions]
        cdef string error
        cdef Library reduced = Library.__new__(Library)
        reduced.library = rt.library_without(deref(self.library), names, error)
        if reduced.library is NULL:
            raise ValueError(error.decode())
        return reduced

    def acl_version(self) -> str:
        """Version of the ACL API, such as "1.17.0" (aclrtGetVersion)."""
        cdef int32_t major = 0, minor = 0, patch = 0
        check_fork()
        with nogil:
            self.library.version(major, minor, patch)
        return f"{major}.{minor}.{patch}"

    def soc_name(self) -> str | None:
        """Name of the chip (aclrtGetSocName), None where the library does not say. Blocks."""
        cdef const char *name = NULL
        self.prepare()
        with nogil:
            name = self.library.soc_name()
        return None if name is NULL else name.decode()

    def device_count(self) -> int:
        """Number of devices (aclrtGetDeviceCount). Blocks."""
        cdef uint32_t count = 0
        cdef int code
        self.prepare()
        with nogil:
            self.library.api.aclInit(NULL)
            code = self.library.api.aclrtGetDeviceCount(&count)
        if code != 0:
            raise acl_error(&self.library.api, &self.library.can, code, "aclrtGetDeviceCount")
        return count


def load_library(path: str) -> Library:
    """Load the AscendCL library at `path`. Blocks; `aioascend.backend_info` says what is tried.

    Raises:
        BackendError: the file cannot be loaded or is not a complete ACL library.
    """
    cdef string error
    cdef string where = os.fsencode(path)
    cdef Library self = Library.__new__(Library)
    with nogil:
        self.library = rt.load_library(where, error)
    if self.library is NULL:
        raise _errors.BackendError(error.decode(errors="backslashreplace"))
    if _debugging:
        with nogil:
            self.library = rt.observe_blocking_calls(deref(self.library), note_blocking_call)
    return self


def _shut_down() -> None:
    with nogil:
        rt.shut_down()
