# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=True, binding=False, boundscheck=False, wraparound=False
# cython: freethreading_compatible=False, auto_pickle=False, autotestdict=False
"""What the benchmarks measure this runtime against and cannot be written in Python: the floor, a stand-in for pyACL."""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free as c_free, malloc as c_malloc
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

cimport cython

include "acl.pxi"
include "pyacl.pxi"
include "loop.pxi"
