// SPDX-License-Identifier: Apache-2.0
// Control interface of the simulator: time, faults, limits, counters and the timeline. Plain C.
//
// Unless said otherwise a function returns 0, or 107000 with a message in aclGetRecentErrMsg(). `device` is a
// device id; -1 means all devices where a function says so. `stream` is an aclrtStream handle. None of them
// needs a context, and they may be called from any thread, also inside callbacks.
#ifndef ACLSIM_H
#define ACLSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// "aioascend-sim x.y"; a program can tell the simulator from a device by looking this symbol up.
const char *aclsimVersion(void);

// Back to the defaults: real clock, profile and device count of the environment, no faults, holds, delays or
// limits, timeline and counters cleared. Devices, contexts, streams and what is queued on them stay.
int aclsimReset(void);

// --- devices, profiles, clock
// ----------------------------------------------------------------------------------- Number of devices
// (1..64); default AIOASCEND_SIM_DEVICES, else 2.
int aclsimSetDeviceCount(int32_t count);
// Device profile: a name ("instant", "inference-card", "atlas-a2") or the path of a TOML file; device -1 =
// all.
int aclsimSetProfile(int32_t device, const char *name_or_path);
// Directory searched for profile names; NULL = `profiles` beside the library.
int aclsimSetProfileDirectory(const char *path);
// 0 real time; 1 virtual: time stands still while something can run and then jumps to the next completion.
int aclsimSetClock(int mode);
// Nanoseconds on the simulated clock.
uint64_t aclsimNow(void);

// --- hold and step
// ---------------------------------------------------------------------------------------------- A held
// stream starts no further task (a running one ends). Holds of a stream do not nest; a stream runs when
// neither it nor its device is held.
int aclsimHoldStream(void *stream);
int aclsimReleaseStream(void *stream);
int aclsimHoldDevice(int32_t device);
int aclsimReleaseDevice(int32_t device);
// Let n more tasks of a held stream pass.
int aclsimStep(void *stream, uint64_t n);
// Block until n tasks of the stream have finished in total since its creation; 507046 after timeout_ms (-1:
// never).
int aclsimWaitTasks(void *stream, uint64_t n, int32_t timeout_ms);
// Block until n threads wait inside the stream (sync, or a launch on a full queue); 507046 after timeout_ms.
int aclsimWaitBlocked(void *stream, uint32_t n, int32_t timeout_ms);

// --- faults
// ----------------------------------------------------------------------------------------------------- The
// nth matching task that starts from now on fails with `code` at its completion; its work is not executed.
// stream NULL and kind NULL match any. Kinds: memcpy_h2d, memcpy_d2h, memcpy_d2d, memset, execute, callback,
// host_func, event_record, event_wait, event_reset, notify_record, notify_wait.
int aclsimFailTask(int32_t device, void *stream, const char *kind, uint64_t nth, int32_t code);
// The report of the nth matching callback from now on is lost (its stream goes on, for BLOCK it stays
// blocked).
int aclsimDropCallback(int32_t device, void *stream, uint64_t nth);
// Every report posted from now on arrives this much later (simulated time); 0 switches it off.
int aclsimDelayReport(int32_t device, uint64_t ns);
// Reports queue up but ProcessReport does not see them.
int aclsimHoldReports(int32_t device);
int aclsimReleaseReports(int32_t device);
// 0 = order of arrival (default); 1 = shuffled across streams, the order inside a stream is kept.
int aclsimSetReportOrder(int mode);
// The device is gone: what runs or is queued never completes, calls return `code` (for example 507010),
// callbacks never run. aclsimRestoreDevice brings the hardware back; aclrtResetDeviceForce then clears the
// fault.
int aclsimLoseDevice(int32_t device, int32_t code);
int aclsimRestoreDevice(int32_t device);
// Calls number nth .. nth + times - 1 of `function` from now on return `code` without doing anything.
int aclsimFailCall(const char *function, uint64_t nth, int32_t code, uint64_t times);
// Every call of `function` takes this much longer (real time); 0 switches it off.
int aclsimSetCallLatency(const char *function, uint64_t ns);
// When exception callbacks run. 0 = on the device's thread, before later tasks of the stream run (default);
// 1 = on a user thread that reaps (sync, query or launch on that stream), at the latest after 50 ms by a
// monitor.
int aclsimSetExceptionDelivery(int mode);
// Which stream the exception of a failed model names. 0 = the one that it was launched on (default); 1 = one of the
// library's own, whose id no program has seen.
int aclsimSetExceptionStream(int mode);

// --- limits and modes
// ------------------------------------------------------------------------------------------- Device memory
// in bytes; 0 = the profile's.
int aclsimLimitMemory(int32_t device, uint64_t bytes);
// Usable entries of every stream's queue (>= 4); 0 = 2013.
int aclsimSetQueueDepth(uint32_t depth);
// Streams (default streams included) and event ids of a device; 0 = the profile's.
int aclsimLimitStreams(int32_t device, uint32_t n);
int aclsimLimitEvents(int32_t device, uint32_t n);
// Asynchronous copies with pageable host memory. 0 = block: the stream is synchronised, then copied at once
// (default); 1 = the old driver: asynchronous and unchecked.
int aclsimSetPageableMode(int mode);
// 1 = abort the process with a message on ACL calls made inside stream callbacks and on freeing memory that a
// task in flight still uses.
int aclsimSetStrict(int on);
// 1 = freed device memory is filled with 0xDB (default), 0 = left as it is.
int aclsimSetPoisonFree(int on);

// --- models
// ----------------------------------------------------------------------------------------------------- Path
// of libopenvino_c.so, which computes ONNX models; taken at the first load of one. NULL = let the dynamic
// linker search. The environment variable AIOASCEND_OPENVINO_LIBRARY wins over it, and aclsimReset leaves it
// alone.
int aclsimSetEngineLibrary(const char *path);

// --- counters
// ---------------------------------------------------------------------------------------------------
uint64_t aclsimCalls(const char *function);
uint64_t aclsimCallsOnThread(const char *function, uint64_t pthread_self);
// Callback tasks launched (aclrtLaunchCallback and aclrtLaunchHostFunc that were accepted).
uint64_t aclsimCallbacksLaunched(void);
// Live objects: "streams" (without default streams), "events", "notifies", "contexts", "device_bytes",
// "host_bytes", "device_blocks", "host_blocks", "models", "datasets", "data_buffers", "subscriptions",
// "tasks" (queued or running). -1 for an unknown name.
int64_t aclsimLive(const char *what);

// --- timeline
// ---------------------------------------------------------------------------------------------------
typedef struct aclsimRecord {
    uint32_t task_id;
    int32_t stream_id;  // -1 for synchronous calls, which run outside every stream
    int32_t device;
    int32_t code;        // 0, or the error the task failed with
    const char *kind;    // see aclsimFailTask; valid as long as the process lives
    const char *name;    // model name or ""; valid as long as the process lives
    const char *unit;    // "none", "copy_in", "copy_out", "copy_device", "ai_core", "host"
    int32_t unit_index;  // which AI Core; 0 elsewhere
    int32_t reserved;
    uint64_t queued_ns;  // simulated clock
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t bytes;
} aclsimRecord;

// Finished tasks in order of completion, the newest `cap` of those kept. *count = number of records written;
// with out NULL and cap 0, the number available.
int aclsimTimeline(aclsimRecord *out, size_t cap, size_t *count);
int aclsimClearTimeline(void);
// Records kept per device (default 65536); 0 switches the timeline off.
int aclsimSetTimelineCapacity(size_t records);

#ifdef __cplusplus
}
#endif

#endif  // ACLSIM_H
