// SPDX-License-Identifier: Apache-2.0
// What the tests of the runtime are made of: loops, an open device of the simulator, and commands.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <random>

#include "ledger.h"
#include "scale.h"

namespace native {

inline const Library &simulator() {
    Dl_info info{};
    std::string error;
    CHECK(dladdr(reinterpret_cast<const void *>(&aclsimReset), &info) != 0);
    const Library *library = load_library(info.dli_fname, error);
    if (library == nullptr) {
        check::failed(__FILE__, __LINE__, error);
    }
    return *library;
}

inline const Library &simulator_without(const std::vector<std::string> &functions) {
    static auto *made = new std::map<std::vector<std::string>, const Library *>;
    std::string error;
    const Library *&library = (*made)[functions];
    if (library == nullptr && (library = library_without(simulator(), functions, error)) == nullptr) {
        check::failed(__FILE__, __LINE__, error);
    }
    return *library;
}

// An event loop, as far as the runtime is concerned: a thread that drains a bridge whenever its descriptor says so.
class Loop {
public:
    Loop() : stop_(eventfd(0, EFD_CLOEXEC)), thread_([this] { run(); }) {}
    ~Loop() {
        const uint64_t one = 1;
        CHECK(write(stop_, &one, sizeof one) == sizeof one);
        thread_.join();
        Ledger::take(bridge.close(), bridge);
        ::close(stop_);
    }
    Loop(const Loop &) = delete;
    Loop &operator=(const Loop &) = delete;

    Bridge bridge;

private:
    void run() {
        pollfd watched[] = {{bridge.fd(), POLLIN, 0}, {stop_, POLLIN, 0}};
        while (watched[1].revents == 0) {
            poll(watched, 2, -1);
            if (watched[0].revents != 0) {
                Ledger::take(bridge.drain(), bridge);
            }
        }
    }

    const int stop_;
    std::thread thread_;
};

// Runs the body in so many threads; what one of them throws is thrown here.
inline void in_threads(int count, const std::function<void(int)> &body) {
    std::vector<std::exception_ptr> problems(static_cast<size_t>(count));
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            try {
                body(i);
            } catch (...) {
                problems[static_cast<size_t>(i)] = std::current_exception();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const std::exception_ptr &problem : problems) {
        if (problem) {
            std::rethrow_exception(problem);
        }
    }
}

inline Command memset_of(Place to, size_t size, int value) {
    Command command;
    command.kind = Kind::Memset;
    command.dst = to;
    command.size = size;
    command.value = value;
    return command;
}

inline Command copy(Place to, Place from, size_t size, aclrtMemcpyKind direction) {
    Command command;
    command.kind = Kind::Memcpy;
    command.dst = to;
    command.src = from;
    command.size = size;
    command.value = direction;
    return command;
}

inline Command of_event(Kind kind, aclrtEvent event) {
    Command command;
    command.kind = kind;
    command.subject = event;
    return command;
}

inline Command join() {
    Command command;
    command.kind = Kind::Join;
    return command;
}

inline Command run_of(Execution *run) {
    Command command;
    command.kind = Kind::Execute;
    command.subject = run;
    return command;
}

inline Command queued(Command command) {
    command.may_block = true;  // so it takes the way over the host-side queue
    return command;
}

// An open device, its loops and its streams. A test ends with close(); one that fails leaves everything behind, for
// its threads may still use it.
class World {
public:
    explicit World(Options options = {}, const Library &library = simulator(), int32_t index = 0)
        : state_(new State(library, index, options)) {
        CHECK_EQ(device().open(), 0);
    }
    ~World() {
        if (closed_) {
            delete state_;
        }
    }
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    Device &device() { return state_->device; }
    Ledger &ledger() { return state_->ledger; }
    Bridge *loop(size_t number = 0) { return &state_->loops[number].bridge; }  // 0 or 1
    std::shared_ptr<Stream> stream() {
        std::shared_ptr<Stream> made;
        CHECK_EQ(device().create_stream(0, 0, made), 0);
        return made;
    }
    std::vector<std::shared_ptr<Stream>> streams(size_t count) {
        std::vector<std::shared_ptr<Stream>> made;
        while (made.size() < count) {
            made.push_back(stream());
        }
        return made;
    }
    // Device memory that is there, for as long as the device is open.
    Place memory(size_t size) {
        Memory *memory = device().device_memory().acquire(size);
        CHECK_EQ(device().device_memory().wait(memory), 0);
        state_->memory.push_back(memory);
        return {memory, 0};
    }
    aclrtEvent event() {
        aclrtEvent event = nullptr;
        CHECK_EQ(device().create_event(false, event), 0);
        return event;
    }

    Op submit(const std::shared_ptr<Stream> &stream, const Command &command, bool awaited = true) {
        Op op = ledger().submit(stream, command, loop());
        if (awaited && op->status == kSubmitted) {
            stream->arm(op->ticket);
        }
        return op;
    }
    Op record(const std::shared_ptr<Stream> &stream, aclrtEvent event) {
        return ledger().submit(stream, of_event(Kind::Record, event), loop());
    }
    // A wait for what `recorded` recorded on another stream.
    Op wait_for(const std::shared_ptr<Stream> &stream, aclrtEvent event, const std::shared_ptr<Stream> &source,
                const Op &recorded) {
        return ledger().submit(stream, of_event(Kind::Wait, event), loop(), [&](Operation &op) {
            op.ticket.more().source = source;
            op.ticket.more().source_seq = recorded->ticket.seq;
        });
    }

    // Everything that was accepted is resolved; then streams and device are given back and the books checked.
    void close() { CHECK_EQ(finish(), 0); }
    aclError finish() {
        for (const auto &stream : device().streams()) {
            stream->close();
            stream->destroy();
        }
        ledger().wait_all();
        for (Memory *memory : state_->memory) {
            device().device_memory().release(memory);
        }
        const aclError code = device().close();
        Ledger::take_orphans();
        ledger().check();
        closed_ = true;
        return code;
    }

private:
    struct State {
        State(const Library &library, int32_t index, const Options &options) : device(library, index, options) {}
        Ledger ledger;
        Loop loops[2];
        std::vector<Memory *> memory;
        Device device;
    };
    State *state_;
    bool closed_ = false;
};

}  // namespace native
