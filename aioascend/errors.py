# SPDX-License-Identifier: Apache-2.0
"""The exceptions of aioascend.

Every failure that the ACL library reports, from a call or later from the device, is an `AclError`. Its class
is the family of the code, so the same failure has the same class wherever it came up; the families and the
codes in them are listed in docs/errors-table.md. Failures of aioascend's own are the other children of
`AioascendError`.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from aioascend import _error_table

__all__ = [
    "AioascendError",
    "AclError",
    "ArgumentError",
    "ContextError",
    "ResourceError",
    "OutOfMemoryError",
    "AclTimeoutError",
    "TaskError",
    "ModelError",
    "DeviceError",
    "DeviceLostError",
    "UnsupportedError",
    "DependencyError",
    "ReportLostError",
    "RuntimeClosedError",
    "QueueFullError",
    "DeadlineError",
    "BackendError",
    "ForkError",
    "error_from_code",
    "is_transient",
]


class AioascendError(Exception):
    """Parent of every exception that aioascend defines."""


class AclError(AioascendError):
    """A failure that the ACL library reported, or that follows from one.

    Make one with `error_from_code`, which picks the class. Instances can be pickled and copied.

    Attributes:
        code: The `aclError` value; 0 when the library gave none.
        name: The constant's name, such as `ACL_ERROR_RT_MEMORY_ALLOCATION`; `unknown` for an unlisted code.
        hint: One sentence on the way out.
        retry: `caller` (change the call), `retry` (can succeed later), `elsewhere` (another device can do
            it) or `gone` (the device must be reset by force first).
        where: The ACL function or operation that failed; may be empty.
        detail: The library's own message for this failure (`aclGetRecentErrMsg`); may be empty.
        device: Index of the device, None when not known.
        stream: Id of the stream (`aclrtStreamGetId`), None when not known.
    """

    def __init__(
        self,
        code: int,
        where: str = "",
        detail: str = "",
        *,
        device: int | None = None,
        stream: int | None = None,
    ) -> None:
        entry = self._entry_of(code)
        self.code = code
        self.name = entry.name
        self.hint = entry.hint
        self.retry = entry.retry
        self.where = where
        self.detail = detail.strip()
        self.device = device
        self.stream = stream
        super().__init__(self._message())

    @staticmethod
    def _entry_of(code: int) -> _error_table.Entry:
        return _entry(code)

    def _message(self) -> str:
        return f"{self._failure()}{self._place()}: {self._explanation()}"

    def _failure(self) -> str:
        return f"{self.where or 'ACL call'} failed with {self.code} ({self.name})"

    def _place(self) -> str:
        parts = []
        if self.device is not None:
            parts.append(f"device {self.device}")
        if self.stream is not None:
            parts.append(f"stream {self.stream}")
        return f" on {', '.join(parts)}" if parts else ""

    def _explanation(self) -> str:
        return f"{self.detail.rstrip('.')}. {self.hint}" if self.detail else self.hint

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (type(self), self.code, self.where, self.detail, self.device, self.stream)
        return _rebuild, arguments, self.__dict__


def _rebuild(
    cls: type[AclError], code: int, where: str, detail: str, device: int | None, stream: int | None
) -> AclError:
    return cls(code, where, detail, device=device, stream=stream)


class ArgumentError(AclError):
    """A call got an argument that it cannot take: a wrong value, a destroyed object, an unknown device."""


class ContextError(AclError):
    """A call came at the wrong time or from the wrong place: context, thread, subscription or life cycle."""


class ResourceError(AclError):
    """A limited resource of the device or driver ran out: streams, events, queues, ids."""


class OutOfMemoryError(ResourceError):
    """Device memory, or pinned host memory, ran out."""


class AclTimeoutError(AclError, TimeoutError):
    """A bounded wait of the ACL library ended early. What was waited for may still happen."""


class TaskError(AclError):
    """A task that was accepted failed on the device, or was aborted there. Its outputs are not to be used."""


class ModelError(AclError):
    """A model cannot be loaded, or not be run as asked: file, version, inputs or shapes do not fit."""

    def _explanation(self) -> str:
        return self.detail or self.hint  # what is wrong with this very model is more to the point


class DeviceError(AclError):
    """The device, its driver or the ACL library is at fault, rather than one call."""


class DeviceLostError(DeviceError):
    """The device is out of service: nothing that was submitted to it completes, and it takes nothing more.

    It was lost, or its context stopped for good; or it was reset, and what was in flight went with that. `code` is what
    the library said first, `retry` always "gone". `Device.reset` brings it back where the hardware does.
    """

    @staticmethod
    def _entry_of(code: int) -> _error_table.Entry:
        entry = _entry(code)
        if entry.retry == "gone":
            return entry
        retry, hint = _error_table.FAMILIES["DeviceLostError"]
        if code == _RESET:
            return entry._replace(retry=retry, hint="It was reset; make streams, buffers and models again.")
        return entry._replace(retry=retry, hint=f"That put the device out of service. {hint}")


class UnsupportedError(AclError):
    """This chip, driver, version of the library or the simulator does not have the feature."""


class DependencyError(AclError):
    """An operation was queued behind one that failed, so what it worked on, and its result, is worthless.

    The operation itself may have run. `__cause__` is the original failure, `code` and `name` are the original's. The
    operation is not at fault, so `retry` is "retry" unless the device is gone. Guaranteed for operations of the same
    stream, and of streams that waited for an event recorded behind the failure; what was submitted after the failure
    was raised is not affected.
    """

    @classmethod
    def behind(
        cls, cause: AclError, where: str = "", *, device: int | None = None, stream: int | None = None
    ) -> DependencyError:
        """The error of the operation `where` that ran behind the failure `cause`."""
        error = cls(cause.code, where, str(cause), device=device, stream=stream)
        error.__cause__ = cause
        if cause.retry == "gone":
            error.retry, error.hint = cause.retry, cause.hint
            error.args = (error._message(),)
        return error

    @staticmethod
    def _entry_of(code: int) -> _error_table.Entry:
        return _entry(code)._replace(retry="retry", hint="Submit it again, with what it works on.")

    def _failure(self) -> str:
        return f"{self.where or 'the operation'} ran behind a failed one"

    def _explanation(self) -> str:
        return self.detail or f"that failed with {self.code} ({self.name}). {self.hint}"


class ReportLostError(AclError):
    """The completion report of an operation never came, so it is not known whether the operation ran.

    Raised instead of waiting for ever, when the stream or device can be seen to have stopped or to have gone
    past the operation. `code` is what the library says about the stream or device, 0 if it says nothing.
    """

    @staticmethod
    def _entry_of(code: int) -> _error_table.Entry:
        entry = _entry(code)
        return entry if entry.retry == "gone" else entry._replace(retry="retry", hint=_LOST_HINT)

    def _failure(self) -> str:
        known = f" ({self.code} {self.name})" if self.code else ""
        return f"the completion report of {self.where or 'an operation'} never came{known}"


class RuntimeClosedError(AioascendError):
    """Something was submitted to, or asked of, a device, stream, model or loop that is closed."""


class QueueFullError(AioascendError):
    """A bounded queue took no more, so nothing was submitted: the device has not seen the request.

    Attributes:
        depth: How many were waiting.
        limit: How many may wait.
        retry_after: Seconds until there is probably room, by how fast the queue has been moving; None when not known.
    """

    def __init__(self, what: str, depth: int, limit: int, retry_after: float | None = None) -> None:
        self.what = what
        self.depth = depth
        self.limit = limit
        self.retry_after = retry_after
        when = "later" if retry_after is None else f"in {retry_after:.3g} s"
        super().__init__(f"{what} is full: {depth} are waiting, at most {limit} may; try again {when}, or send less")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.depth, self.limit, self.retry_after), self.__dict__


class DeadlineError(AioascendError, TimeoutError):
    """A request was not done in time.

    Attributes:
        started: Whether it was under way. If not, it was never submitted to the device; if so, its work goes on there,
            and nobody gets the result.
        waited: Seconds since it was made.
    """

    def __init__(self, what: str, waited: float, *, started: bool) -> None:
        self.what = what
        self.waited = waited
        self.started = started
        how = "under way" if started else "still queued, and was never submitted"
        super().__init__(f"{what} was not done in time: after {waited:.3g} s it was {how}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_deadline, (type(self), self.what, self.waited, self.started), self.__dict__


def _rebuild_deadline(cls: type[DeadlineError], what: str, waited: float, started: bool) -> DeadlineError:
    return cls(what, waited, started=started)


class BackendError(AioascendError):
    """No ACL library could be loaded.

    Attributes:
        attempts: What was tried, in order: pairs of a path (or name) and the reason why it was not used.
    """

    def __init__(self, message: str, attempts: list[tuple[str, str]] | None = None) -> None:
        self.message = message
        self.attempts = list(attempts or [])
        super().__init__("\n".join([message, *(f"  {path}: {reason}" for path, reason in self.attempts)]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.attempts), self.__dict__


class ForkError(AioascendError):
    """The process was forked after the ACL library was initialised; the child cannot use it.

    Start processes with the `spawn` or `forkserver` method, or open the device only in the child.
    """


_FAMILIES: dict[str, type[AclError]] = {
    cls.__name__: cls
    for cls in (
        ArgumentError,
        ContextError,
        ResourceError,
        OutOfMemoryError,
        AclTimeoutError,
        TaskError,
        ModelError,
        DeviceError,
        DeviceLostError,
        UnsupportedError,
    )
}


_RESET = 107022  # ACL_ERROR_RT_DEVICE_TASK_ABORT: for what was in flight when the device was reset
_LOST_HINT = "It has probably run; submit it again if that does no harm."
_NEXT_MESSAGE = re.compile(r"\n(?=E[A-Z0-9]\d{4}:)")


def newest_message(text: str) -> str:
    """The newest of the messages that aclGetRecentErrMsg gives; the others are of earlier calls on the thread."""
    return _NEXT_MESSAGE.split(text)[0]


def _entry(code: int) -> _error_table.Entry:
    known = _error_table.CODES.get(code)
    if known is not None:
        return known
    for first, last, family in _error_table.RANGES:
        if first <= code <= last:
            retry, hint = _error_table.FAMILIES[family]
            return _error_table.Entry("unknown", family, retry, hint)
    return _error_table.Entry("unknown", "AclError", "elsewhere", "The log of the ACL library may say more.")


def error_from_code(
    code: int,
    where: str = "",
    detail: str = "",
    *,
    device: int | None = None,
    stream: int | None = None,
) -> AclError:
    """The exception for an `aclError` value, of the class of its family; not raised.

    A code that no table lists gets the family of its range, or `AclError` itself outside of all ranges.

    Args:
        code: The `aclError` value. Not 0.
        where: The ACL function or operation that failed.
        detail: The library's own message, if it gave one.
        device: Index of the device, if known.
        stream: Id of the stream, if known.

    Raises:
        ValueError: `code` is 0, which is success.
    """
    if code == 0:
        raise ValueError(f"code 0 means success, not an error of {where or 'an ACL call'}; check it first")
    cls = _FAMILIES.get(_entry(code).family, AclError)
    return cls(code, where, detail, device=device, stream=stream)


def fresh(error: Exception) -> Exception:
    """The same error for one more who is told of it: without the frames that it has come through, and without what
    others make of it; itself if it cannot be copied."""
    try:
        told = copy.copy(error)
    except Exception:
        return error
    told.__cause__ = error.__cause__
    if notes := error.__dict__.get("__notes__"):
        told.__dict__["__notes__"] = list(notes)
    return told


def is_transient(error: BaseException) -> bool:
    """Whether what has failed with `error` can succeed when it is done once more: its `retry` is "retry"."""
    return isinstance(error, AclError) and error.retry == "retry"
