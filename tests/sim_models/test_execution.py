# SPDX-License-Identifier: Apache-2.0
"""The rules of executing: datasets, contexts, ids, lifetimes and what happens at the same time."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int32, c_uint32, c_void_p
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sim_models.oracle import answers, assert_same, floats
from sim_models.simulator import (
    TYPES,
    Acl,
    AclError,
    Dataset,
    Description,
    DeviceMemory,
    Launch,
    Model,
    new_stream,
    timeline,
)

Load = Callable[[Path | bytes | str], Model]
Launcher = Callable[..., Launch]

ADD_UP = """
name = "sum"
latency_us = 1000
inputs = [{ name = "x", shape = [4] }, { name = "y", shape = [2] }]
outputs = [{ name = "total", shape = [1], fill = "sum" }]
"""
DYNAMIC = """
inputs = [{ name = "x", shape = [-1, 2] }]
outputs = [{ name = "y", shape = [-1, 2], fill = "copy" }]
"""
ONES, TWOS = np.ones(4, np.float32), np.full(2, 2, np.float32)


@pytest.fixture
def run(load: Load, launch: Launcher) -> Launch:
    return launch(load(ADD_UP), [ONES, TWOS], [4])


def refused(code: int, message: str, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(AclError, match=message) as caught:
        call(*arguments)
    assert caught.value.code == code


def test_execution_is_in_stream_order(run: Launch, acl: Acl, stream: c_void_p) -> None:
    """Inputs are read and outputs written when the device gets there, not when the call was made."""
    host = np.full(4, 5, np.float32)
    acl.aclsimHoldStream(stream)
    run.execute_async(stream)
    run.inputs[0].write(host)
    acl.aclsimReleaseStream(stream)
    acl.aclrtSynchronizeStream(stream)
    assert run.result(0).tolist() == [20]


def test_synchronous_execution_does_not_wait_for_streams(run: Launch, acl: Acl, stream: c_void_p) -> None:
    acl.aclsimHoldStream(stream)
    acl.aclrtMemsetAsync(run.outputs[0].address, 4, 0, 4, stream)
    run.execute()
    assert run.result(0).tolist() == [4]
    acl.aclsimReleaseStream(stream)
    acl.aclrtSynchronizeStream(stream)
    assert run.result(0, [1]).tolist() == [0]


def test_the_default_stream(run: Launch, acl: Acl) -> None:
    run.execute_async(None)
    acl.aclrtSynchronizeStream(None)
    assert run.result(0).tolist() == [4]


def test_the_number_of_buffers_must_match(run: Launch, acl: Acl) -> None:
    more = Dataset(acl, [*run.inputs, run.inputs[0]])
    execute = acl.aclmdlExecute
    refused(100017, "has 2 inputs, the dataset holds 3", execute, run.model.id, more.handle, run.output_set.handle)
    refused(100018, "has 1 outputs, the dataset holds 3", execute, run.model.id, run.input_set.handle, more.handle)
    more.destroy()


def test_buffers_must_be_large_enough(run: Launch, acl: Acl) -> None:
    acl.aclUpdateDataBuffer(run.input_set.buffers[1], run.inputs[1].address, 7)
    refused(100017, "buffer of input y has 7 bytes, but 8 are needed", run.execute)
    acl.aclUpdateDataBuffer(run.input_set.buffers[1], run.inputs[1].address, 8)
    acl.aclUpdateDataBuffer(run.output_set.buffers[0], run.outputs[0].address, 3)
    refused(100018, "buffer of output total has 3 bytes, but 4 are needed", run.execute)


def test_buffers_must_be_device_memory_of_the_models_device(run: Launch, acl: Acl) -> None:
    host = np.zeros(4, np.float32)
    acl.aclUpdateDataBuffer(run.input_set.buffers[0], host.ctypes.data, 16)
    refused(145007, "buffer of input x .* is not device memory; allocate it with aclrtMalloc", run.execute)
    acl.aclrtSetDevice(1)
    elsewhere = DeviceMemory(acl, 16)
    acl.aclrtSetDevice(0)
    acl.aclUpdateDataBuffer(run.input_set.buffers[0], elsewhere.address, 16)
    refused(145007, "lies on device 1, the model on device 0", run.execute)
    elsewhere.free()
    acl.aclrtResetDevice(0)
    acl.aclrtResetDevice(1)


def test_destroyed_handles(run: Launch, acl: Acl) -> None:
    gone = acl.aclmdlCreateDataset()
    acl.aclmdlDestroyDataset(gone)
    refused(100000, "input dataset", acl.aclmdlExecute, run.model.id, gone, run.output_set.handle)
    refused(100000, "output dataset", acl.aclmdlExecute, run.model.id, run.input_set.handle, gone)
    refused(100000, "destroyed", acl.aclmdlDestroyDataset, gone)
    refused(100000, "destroyed", acl.aclmdlAddDatasetBuffer, gone, run.input_set.buffers[0])
    refused(100000, "input dataset", acl.aclmdlExecute, run.model.id, None, run.output_set.handle)


def test_a_data_buffer_that_is_destroyed_before_its_dataset(run: Launch, acl: Acl) -> None:
    buffer = acl.aclCreateDataBuffer(run.inputs[0].address, 16)
    dataset = Dataset(acl, [])
    acl.aclmdlAddDatasetBuffer(dataset.handle, buffer)
    acl.aclmdlAddDatasetBuffer(dataset.handle, run.input_set.buffers[1])
    acl.aclDestroyDataBuffer(buffer)
    refused(
        100000,
        "data buffer of input x is destroyed",
        acl.aclmdlExecute,
        run.model.id,
        dataset.handle,
        run.output_set.handle,
    )
    refused(100000, "destroyed", acl.aclDestroyDataBuffer, buffer)
    dataset.destroy()


def test_datasets_may_go_right_after_the_call(run: Launch, acl: Acl, stream: c_void_p) -> None:
    inputs, outputs = Dataset(acl, run.inputs), Dataset(acl, run.outputs)
    acl.aclsimHoldStream(stream)
    acl.aclmdlExecuteAsync(run.model.id, inputs.handle, outputs.handle, stream)
    inputs.destroy()
    outputs.destroy()
    acl.aclsimReleaseStream(stream)
    acl.aclrtSynchronizeStream(stream)
    assert run.result(0, [1]).tolist() == [4]


def test_memory_that_is_freed_too_early(run: Launch, acl: Acl, stream: c_void_p) -> None:
    early = DeviceMemory(acl, 16)
    dataset = Dataset(acl, [early, run.inputs[1]])
    acl.aclsimHoldStream(stream)
    acl.aclmdlExecuteAsync(run.model.id, dataset.handle, run.output_set.handle, stream)
    early.free()
    acl.aclsimReleaseStream(stream)
    refused(507015, "input x was freed while the execution was queued", acl.aclrtSynchronizeStream, stream)
    dataset.destroy()


def test_dead_ids(run: Launch, acl: Acl) -> None:
    for dead in (0, 4_000_000_000):
        refused(145003, f"model id {dead} is not loaded", acl.aclmdlUnload, dead)
        refused(145003, "not loaded", acl.aclmdlExecute, dead, run.input_set.handle, run.output_set.handle)
        desc = Description(acl)
        refused(145003, "not loaded", acl.aclmdlGetDesc, desc.handle, dead)
        desc.destroy()


def test_an_id_is_dead_after_unload_and_never_comes_back(load: Load, acl: Acl) -> None:
    first = Model(acl, ADD_UP)
    first.unload()
    assert load(ADD_UP).id != first.id
    refused(145003, "not loaded", acl.aclmdlUnload, first.id)


def test_unload_is_refused_while_work_is_in_flight(run: Launch, acl: Acl, stream: c_void_p) -> None:
    acl.aclsimHoldStream(stream)
    run.execute_async(stream)
    run.execute_async(stream)
    refused(545009, "has 2 executions in flight and stays loaded", acl.aclmdlUnload, run.model.id)
    acl.aclsimReleaseStream(stream)
    acl.aclrtSynchronizeStream(stream)
    assert run.result(0).tolist() == [4]


def test_discarded_executions_let_go_of_the_model(acl: Acl, launch: Launcher, stream: c_void_p) -> None:
    model = Model(acl, ADD_UP)
    run = launch(model, [ONES, TWOS], [4])
    acl.aclsimHoldStream(stream)
    run.execute_async(stream)
    acl.aclrtStreamAbort(stream)
    model.unload()
    acl.aclsimReleaseStream(stream)


def test_load_execute_and_unload_belong_to_one_context(run: Launch, acl: Acl) -> None:
    home, other = c_void_p(), c_void_p()
    acl.aclrtGetCurrentContext(byref(home))
    acl.aclrtCreateContext(byref(other), 0)
    refused(107004, "loaded in another context", run.execute)
    refused(107004, "loaded in another context", run.execute_async, None)
    refused(107004, "loaded in another context", acl.aclmdlUnload, run.model.id)
    acl.aclrtDestroyContext(other)
    refused(107002, "context", run.execute)
    acl.aclrtSetCurrentContext(home)
    run.execute()


def test_a_context_takes_its_models_along(acl: Acl) -> None:
    home, other = c_void_p(), c_void_p()
    acl.aclrtGetCurrentContext(byref(home))
    before = acl.live("models")
    acl.aclrtCreateContext(byref(other), 0)
    model = Model(acl, ADD_UP)
    acl.aclrtDestroyContext(other)
    acl.aclrtSetCurrentContext(home)
    assert acl.live("models") == before
    refused(145003, "not loaded", acl.aclmdlUnload, model.id)
    model.desc.destroy()


def test_a_stream_of_another_context(run: Launch, acl: Acl, stream: c_void_p) -> None:
    home, other = c_void_p(), c_void_p()
    acl.aclrtGetCurrentContext(byref(home))
    acl.aclrtCreateContext(byref(other), 0)
    refused(107003, "context", run.execute_async, stream)
    acl.aclrtDestroyContext(other)
    acl.aclrtSetCurrentContext(home)


def test_one_id_on_two_streams_at_the_same_time(run: Launch, launch: Launcher, acl: Acl, stream: c_void_p) -> None:
    """The second one fails; the first is not disturbed."""
    acl.aclsimSetClock(1)
    second, other = launch(run.model, [ONES, TWOS], [4]), new_stream(acl)
    acl.aclsimHoldDevice(0)
    run.execute_async(stream)
    second.execute_async(other)
    acl.aclsimReleaseDevice(0)
    codes = [acl.value("aclrtSynchronizeStream", each) for each in (stream, other)]
    assert "is already executing on another stream; load it once per stream" in acl.message()
    assert sorted(codes) == [0, 507011]
    winner = run if codes[0] == 0 else second
    assert winner.result(0).tolist() == [4]
    acl.aclrtDestroyStream(other)


def test_one_id_on_two_streams_one_after_the_other(run: Launch, launch: Launcher, acl: Acl, stream: c_void_p) -> None:
    """Ordered by an event, that is fine."""
    acl.aclsimSetClock(1)
    second, other, event = launch(run.model, [ONES, TWOS], [4]), new_stream(acl), c_void_p()
    acl.aclrtCreateEventExWithFlag(byref(event), 1)
    for _ in range(20):
        run.execute_async(stream)
        acl.aclrtRecordEvent(event, stream)
        acl.aclrtStreamWaitEvent(other, event)
        second.execute_async(other)
        acl.aclrtRecordEvent(event, other)
        acl.aclrtStreamWaitEvent(stream, event)
    acl.aclrtSynchronizeStream(stream)
    acl.aclrtSynchronizeStream(other)
    assert second.result(0).tolist() == [4]
    acl.aclrtDestroyEvent(event)
    acl.aclrtDestroyStream(other)


def test_one_id_back_to_back(run: Launch, acl: Acl, stream: c_void_p) -> None:
    acl.aclsimSetClock(1)
    acl.aclsimClearTimeline()
    for _ in range(50):
        run.execute_async(stream)
    acl.aclrtSynchronizeStream(stream)
    records = timeline(acl)
    assert [record.code for record in records] == [0] * 50
    assert all(b.start_ns >= a.end_ns for a, b in pairwise(records))


def test_system_allocated_outputs(load: Load, launch: Launcher, acl: Acl, recognizer: Path) -> None:
    image = floats(1, 1, 3, 48, 96)
    run = launch(load(recognizer), [image], [None])
    run.input_set.describe(0, "float32", image.shape)
    refused(100018, "only aclmdlExecute and aclmdlExecuteV2 allocate outputs", run.execute_async, None)
    run.execute()
    buffer = acl.aclmdlGetDatasetBuffer(run.output_set.handle, 0)
    shape = run.output_set.shape(0)
    assert shape is not None
    host = np.empty(shape, np.float32)
    assert acl.aclGetDataBufferSizeV2(buffer) == host.nbytes
    address = acl.aclGetDataBufferAddr(buffer)
    acl.aclrtMemcpy(host, host.nbytes, address, host.nbytes, 2)
    (expected,) = answers(recognizer, {"x": image})
    assert_same(host, expected)
    acl.aclrtFree(address)


def test_execute_v2(run: Launch, acl: Acl, stream: c_void_p) -> None:
    """Waits for the stream, at most as long as the config says."""
    config = acl.aclmdlCreateExecConfigHandle()
    arguments = (run.model.id, run.input_set.handle, run.output_set.handle, stream, config)
    acl.aclmdlExecuteV2(*arguments)
    assert run.result(0).tolist() == [4]
    acl.aclmdlSetExecConfigOpt(config, 0, byref(c_int32(1)), 4)
    acl.aclsimHoldStream(stream)
    refused(507046, "not finished in time; the work goes on", acl.aclmdlExecuteV2, *arguments)
    acl.aclsimReleaseStream(stream)
    acl.aclrtSynchronizeStream(stream)
    acl.aclmdlDestroyExecConfigHandle(config)
    refused(100000, "execution config", acl.aclmdlExecuteV2, *arguments)


def test_exec_config_checks_options(acl: Acl) -> None:
    config = acl.aclmdlCreateExecConfigHandle()
    option = acl.aclmdlSetExecConfigOpt
    refused(100000, "takes a value of 4 bytes, not 8", option, config, 0, byref(c_int32(1)), 8)
    refused(100000, "unknown", option, config, 77, byref(c_int32(1)), 4)
    refused(100000, "timeout 0 ms", option, config, 0, byref(c_int32(0)), 4)
    refused(100000, "takes a value of 4 bytes", option, config, 0, None, 4)
    acl.aclmdlSetExecConfigOpt(config, 8, byref(c_int32(3)), 4)
    acl.aclmdlDestroyExecConfigHandle(config)
    refused(100000, "destroyed", acl.aclmdlDestroyExecConfigHandle, config)


def test_the_shape_of_a_dynamic_input_must_be_told(load: Load, launch: Launcher, acl: Acl) -> None:
    run = launch(load(DYNAMIC), [np.zeros((3, 2), np.float32)], [24])
    refused(145021, r"open shape \[-1,2\]; give the actual one by aclmdlSetDatasetTensorDesc", run.execute)
    run.input_set.describe(0, "float32", [3, 3])
    refused(145021, r"has shape \[-1,2\], its tensor description says \[3,3\]", run.execute)
    run.input_set.describe(0, "float32", [2])
    refused(145021, "its tensor description says", run.execute)
    run.input_set.describe(0, "float32", [-1, 2])
    refused(145021, "its tensor description says", run.execute)
    run.input_set.describe(0, "float16", [3, 2])
    refused(145022, "is float32, its tensor description says float16", run.execute)
    run.input_set.describe(0, "float32", [4, 2])
    refused(100017, "has 24 bytes, but 32 are needed", run.execute)
    run.input_set.describe(0, "float32", [3, 2])
    run.execute()
    assert run.output_set.shape(0) == [3, 2]


def test_a_small_output_of_a_real_model_fails_the_task(
    load: Load, launch: Launcher, acl: Acl, detector: Path, stream: c_void_p
) -> None:
    image = floats(2, 1, 3, 64, 64)
    model = load(detector)
    for size in (64 * 64 * 4 - 4096, 64 * 64 * 4 - 1):
        run = launch(model, [image], [size])
        run.input_set.describe(0, "float32", image.shape)
        run.execute_async(stream)
        refused(
            507011,
            rf"output 'sigmoid_0.tmp_0' came out as \[1,1,64,64\] float32.* buffer of {size} bytes",
            acl.aclrtSynchronizeStream,
            stream,
        )


def test_an_injected_failure(run: Launch, acl: Acl, stream: c_void_p) -> None:
    acl.aclsimFailTask(0, stream, b"execute", 2, 507015)
    run.execute_async(stream)
    run.execute_async(stream)
    run.execute_async(stream)
    refused(507015, "execute", acl.aclrtSynchronizeStream, stream)
    run.execute_async(stream)
    acl.aclrtSynchronizeStream(stream)


def test_bad_indices(run: Launch, acl: Acl) -> None:
    desc = run.model.desc
    refused(100000, "input index 2 of model sum, which has 2 inputs", desc.input_dims, 2)
    refused(100000, "output index 1 of model sum, which has 1 outputs", desc.output_dims, 1)
    refused(100000, "has no input 'z'; it has: x, y", desc.index_of_input, "z")
    assert desc.input_size(2) == desc.output_size(1) == 0
    assert acl.aclmdlGetInputNameByIndex(desc.handle, 2) == b""
    assert acl.aclmdlGetDatasetBuffer(run.input_set.handle, 2) is None
    assert "index 2 of a dataset that holds 2 buffers" in acl.message()
    empty = Description(acl)
    refused(100000, "fill it with aclmdlGetDesc first", empty.input_dims, 0)
    empty.destroy()
    refused(100000, "destroyed", empty.input_dims, 0)


def test_a_description_outlives_its_model(acl: Acl) -> None:
    number, desc = c_uint32(), Description(acl)
    acl.aclmdlLoadFromMem(ADD_UP.encode(), len(ADD_UP), byref(number))
    acl.aclmdlGetDesc(desc.handle, number.value)
    acl.aclmdlUnload(number.value)
    assert desc.inputs() == ["x", "y"]
    assert desc.current_output_dims(0) == [1]
    desc.destroy()


def test_a_tensor_description_is_copied_into_the_dataset(acl: Acl) -> None:
    memory = DeviceMemory(acl, 16)
    dataset = Dataset(acl, [memory])
    assert dataset.shape(0) is None
    dataset.describe(0, "float32", [2, 2])
    assert dataset.shape(0) == [2, 2]
    desc = acl.aclCreateTensorDesc(TYPES["int8"], 0, None, 2)
    refused(100000, "index 1 of a dataset", acl.aclmdlSetDatasetTensorDesc, dataset.handle, desc, 1)
    acl.aclDestroyTensorDesc(desc)
    refused(100000, "destroyed", acl.aclmdlSetDatasetTensorDesc, dataset.handle, desc, 0)
    dataset.destroy()
    memory.free()
