# SPDX-License-Identifier: Apache-2.0
# What the extension uses of the C++ runtime and of the ACL declarations.

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.pair cimport pair
from libcpp.string cimport string
from libcpp.vector cimport vector


cdef extern from "acl/acl.h" nogil:
    ctypedef int aclError
    ctypedef void *aclrtContext
    ctypedef void *aclrtStream
    ctypedef void *aclrtEvent
    ctypedef enum aclrtMemcpyKind:
        ACL_MEMCPY_HOST_TO_DEVICE
        ACL_MEMCPY_DEVICE_TO_HOST
        ACL_MEMCPY_DEVICE_TO_DEVICE
    ctypedef enum aclDataType:
        ACL_DT_UNDEFINED
    ctypedef enum aclFormat:
        ACL_FORMAT_ND


cdef extern from "loader.h" namespace "aioascend" nogil:
    cdef cppclass AclApi:
        aclError aclInit(const char *)
        const char *aclGetRecentErrMsg()
        aclError aclrtGetDeviceCount(uint32_t *)
        aclError aclrtFree(void *)
        aclError aclrtEventElapsedTime(float *, aclrtEvent, aclrtEvent)

    cdef cppclass Capabilities:
        cbool error_message, models, dataset_tensor_desc
        vector[pair[const char *, cbool]] list()

    cdef cppclass Library:
        string path
        AclApi api
        Capabilities can
        vector[string] missing_optional
        void version(int32_t &, int32_t &, int32_t &)
        const char *soc_name()

    const Library *load_library(const string &, string &)
    const Library *library_without(const Library &, const vector[string] &, string &)


cdef extern from "blocking.h" namespace "aioascend" nogil:
    const Library *observe_blocking_calls(const Library &, void (*)(const char *) noexcept nogil)


cdef extern from "ticket.h" namespace "aioascend" nogil:
    cdef enum class Kind(unsigned char):
        Memcpy, Memset, Execute, Record, Wait, Join

    cdef enum class Outcome(unsigned char):
        Ok, Failed, Dependent, Lost

    cdef cppclass Failure:
        uint64_t id
        int32_t code
        int32_t device
        int32_t stream_id
        uint32_t task_id
        uint64_t seq
        Kind kind
        const void *owner
        cbool issued
        cbool of_device
        cbool told

    cdef cppclass TicketExtra:
        shared_ptr[Failure] failure
        void *copy_to
        const Memory *copy_from
        size_t copy_size
        shared_ptr[Stream] source
        uint64_t source_seq
        cbool noted

    cdef cppclass Ticket:
        Ticket *next
        void *owner
        Bridge *bridge
        unique_ptr[TicketExtra] extra
        uint64_t seq
        Kind kind
        Outcome outcome
        cbool on_host
        cbool unreliable
        cbool abandoned
        TicketExtra &more()
        shared_ptr[Failure] failure()

    void finish_copy(Ticket &)


cdef extern from "bridge.h" namespace "aioascend" nogil:
    cdef cppclass Bridge:
        Bridge()
        int fd()
        uint64_t wakeups()
        Ticket *drain()
        Ticket *close()

        @staticmethod
        Bridge &orphans()


cdef extern from "memory.h" namespace "aioascend" nogil:
    cdef int MemoryPending "aioascend::Memory::Pending"
    cdef int MemoryFailed "aioascend::Memory::Failed"

    cdef cppclass MemoryState "std::atomic<int>":
        int load()

    cdef cppclass Memory:
        MemoryState state
        void *base
        size_t size
        aclError code
        char *address(size_t)

    cdef cppclass MemoryStatistics:
        size_t live_bytes, cached_bytes, live_blocks

    cdef cppclass MemoryPool:
        Memory *acquire(size_t)
        void release(Memory *)
        void quarantine(Memory *)
        void try_again(Memory *)
        aclError wait(Memory *)
        MemoryStatistics statistics()


cdef extern from "command.h" namespace "aioascend" nogil:
    cdef cppclass Place:
        Memory *memory
        uintptr_t at

    cdef cppclass Command:
        Kind kind
        cbool may_block
        int32_t value
        Place dst, src
        size_t size
        const void *stage_from
        void *subject


cdef extern from "execution.h" namespace "aioascend" nogil:
    cdef cppclass LoadedModel:
        LoadedModel(const AclApi &, uint32_t)
        uint32_t id
        cbool unloaded
        uint64_t hold

    cdef enum class DynamicKind(unsigned char):
        Static, Batch, Size, Dims, Shape

    cdef cppclass Execution:
        cppclass Tensor:
            Place place
            size_t size
            vector[int64_t] shape
            aclDataType dtype
            aclFormat format
        vector[Tensor] inputs
        vector[Tensor] outputs
        uint64_t held
        DynamicKind dynamic
        size_t dynamic_index
        vector[uint64_t] dynamic_values

        @staticmethod
        Execution *take(LoadedModel &, size_t, size_t)
        void give_back()
        aclError issue(aclrtStream)
        cbool output_shape(size_t, vector[int64_t] &)
        void *system_output(size_t, size_t &)


cdef extern from "model_description.h" namespace "aioascend" nogil:
    cdef cppclass TensorDescription:
        string name
        vector[int64_t] shape
        aclDataType dtype
        aclFormat format
        size_t bytes

    cdef cppclass ModelDescription:
        vector[TensorDescription] inputs
        vector[TensorDescription] outputs
        DynamicKind gear_kind
        vector[vector[uint64_t]] gears


cdef extern from "stream.h" namespace "aioascend" nogil:
    enum SubmitStatus:
        kSubmitted, kClosed, kPoisoned, kForked, kOutOfService, kAborting, kBehind

    cdef cppclass Stream:
        int submit(Ticket &, const Command &)
        int arm(Ticket &)
        cbool rebind(Ticket &, Bridge &)
        aclError query(cbool &)
        void close()
        aclError destroy()
        void destroy_when_drained()
        cbool abort()
        cbool closed()
        cbool given_up()
        cbool destroyed()
        aclrtStream handle()
        int32_t id()
        uint64_t issued_seq()
        size_t in_flight()
        size_t queued()
        shared_ptr[Failure] open_failure()
        shared_ptr[Failure] failure_of(uint64_t)

    int arm_and_submit(Stream &, Ticket &, Stream &, Ticket &, const Command &)


cdef extern from "device.h" namespace "aioascend" nogil:
    cdef cppclass Options:
        Options()
        uint32_t flight_limit
        int32_t report_timeout_ms
        size_t stage_inline_bytes
        size_t device_cache_bytes
        size_t pinned_cache_bytes

    cdef cppclass Health:
        aclError fault
        int64_t failed_ns, progress_ns
        size_t in_flight, queued, orphans

    cdef cppclass Device:
        Device(const Library &, int32_t, const Options &)
        aclError open()
        aclError close()
        cbool close_later()
        aclError reset_by_force()
        aclError fault()
        shared_ptr[Failure] fault_failure()
        Health health()
        cbool closed()
        cbool ended()
        aclError create_stream(uint32_t, uint32_t, shared_ptr[Stream] &)
        aclError wrap_stream(aclrtStream, shared_ptr[Stream] &)
        void told(const shared_ptr[Failure] &)
        aclError create_event(cbool, aclrtEvent &)
        void destroy_event(aclrtEvent)
        cbool event_complete(aclrtEvent)
        aclError memory_info(size_t &, size_t &)
        int64_t ai_cores()
        aclError load_model(const string &, uint32_t &)
        aclError load_model_bytes "load_model"(const void *, size_t, uint32_t &)
        aclError describe_model(LoadedModel &, ModelDescription &, string &)
        aclError unload_model(LoadedModel &)
        void unload_model_soon(uint32_t)
        cbool begin_call(cbool)
        void end_call()
        aclError execute_now(Execution &)
        void hold_runs(LoadedModel &, cbool)
        aclError copy_now(void *, const void *, size_t, aclrtMemcpyKind)
        cbool is_pinned(const void *, size_t)
        MemoryPool &device_memory()
        MemoryPool &pinned_memory()
        const AclApi &api()
        const Options &options()
        aclrtContext context()
        int64_t reports_requested()


cdef extern from "snapshot.h" namespace "aioascend" nogil:
    cdef enum class Held(int):
        Nothing, Full, Launch, Record, Model, Memory, Worker

    cdef cppclass SnapshotWait "aioascend::StreamSnapshot::Wait":
        uint64_t seq, source_seq
        uintptr_t source

    cdef cppclass StreamSnapshot:
        uintptr_t key
        int32_t id
        cbool foreign
        cbool idle
        uint64_t retired_seq, issued_seq, wanted_seq
        Held held
        uintptr_t held_source
        uint64_t held_source_seq
        vector[SnapshotWait] waits

    vector[StreamSnapshot] snapshots(Device &)


cdef extern from "live.h" namespace "aioascend" nogil:
    int live_threads "aioascend::Live::counts().threads"
    int live_descriptors "aioascend::Live::counts().descriptors"


cdef extern from "process.h" namespace "aioascend" nogil:
    cdef cppclass OpenDevices:
        size_t devices, streams
    OpenDevices count_open_devices()
    cbool shutting_down()
    cbool forked()
    int64_t monotonic_ns()
    void watch_process()
    void shut_down()
