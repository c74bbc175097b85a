# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=True, binding=True, boundscheck=False, wraparound=False
# cython: freethreading_compatible=False, auto_pickle=False
"""The compiled core of aioascend: everything between a coroutine and the C++ runtime.

One extension, in parts. The life of an await, part by part: stream.pyx submits, operation.pyx is awaited and asks for
a report, the C++ runtime hears it (runtime/report_thread.cpp), loops.pyx is woken, complete.pyx resolves.
"""

import asyncio
import atexit
import operator
import os
import sys
import threading
import weakref
from contextvars import copy_context

import numpy as np

from aioascend import _debug
from aioascend import errors as _errors

from cpython.buffer cimport (
    Py_buffer, PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_Restore, PyErr_WriteUnraisable
from cpython.long cimport PyLong_AsLongAndOverflow
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cython.operator cimport dereference as deref
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

cimport cython

cimport runtime as rt

cdef extern from "Python.h":
    void PyObject_GC_Track(object)
    void PyObject_GC_UnTrack(object)
    int PyObject_GC_IsTracked(object)
    ctypedef PyObject *(*PyCFunction)(PyObject *, PyObject *)
    bint PyCFunction_Check(object)
    PyCFunction PyCFunction_GetFunction(object) except? NULL
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    void *PyGILState_GetThisThreadState() nogil

cdef extern from *:
    """
    static PyObject *aioascend_dereference_weak(PyObject *ref) {
        PyObject *target;
    #if PY_VERSION_HEX >= 0x030D0000
        if (PyWeakref_GetRef(ref, &target) < 0) return NULL;
        if (target == NULL) Py_RETURN_NONE;
    #else
        target = PyWeakref_GetObject(ref);
        Py_XINCREF(target);
    #endif
        return target;
    }
    """
    object dereference_weak "aioascend_dereference_weak"(object)

__all__ = [
    "Buffer",
    "DeviceBuffer",
    "DeviceCore",
    "Event",
    "Library",
    "LoopBridge",
    "ModelCore",
    "Operation",
    "PinnedBuffer",
    "Run",
    "StreamCore",
    "check_fork",
    "forget_closed_loops",
    "forked",
    "going_away",
    "in_drain",
    "live_counts",
    "load_library",
    "running_bridge",
    "set_debugging",
    "ticket_counts",
]

include "refusals.pyx"
include "debug.pyx"
include "library.pyx"
include "loops.pyx"
include "memory.pyx"
include "operation.pyx"
include "complete.pyx"
include "event.pyx"
include "stream.pyx"
include "model.pyx"
include "device.pyx"

atexit.register(_shut_down)
