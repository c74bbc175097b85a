// SPDX-License-Identifier: Apache-2.0
// A command is one call on a stream, kept as data so that it can be issued now or from the host-side queue later.
#pragma once

#include <cstdint>

#include "loader.h"
#include "memory.h"
#include "ticket.h"

namespace aioascend {

class Execution;

// An address that may not exist yet: pool memory that is still being allocated, or a plain pointer.
struct Place {
    Memory *memory = nullptr;
    uintptr_t at = 0;  // an offset into it; without one, the address

    void *address() const { return memory ? memory->address(at) : reinterpret_cast<void *>(at); }
    int state() const { return memory ? memory->state.load(std::memory_order_acquire) : int(Memory::Ready); }
};

struct Command {
    Kind kind = Kind::Memcpy;
    bool may_block = false;  // must not be issued from an event loop's thread
    int32_t value = 0;       // Memset: the byte; Memcpy: an aclrtMemcpyKind
    Place dst, src;
    size_t size = 0;
    const void *stage_from = nullptr;  // pageable bytes that go into src first
    void *subject = nullptr;           // Record, Wait: the aclrtEvent; Execute: the Execution

    int state() const;                 // of all the memory it needs: Pending, Ready or Failed
    bool on_hold() const;              // Execute: its model is reserved for a run that waits
    bool makes_task() const;           // surely; an empty copy does not, a wait for what is done already need not
    aclError memory_code() const;      // the code of a failed allocation
    void stage() const;                // copy stage_from into src
    aclError issue(const AclApi &api, aclrtStream stream) const;

private:
    Execution &execution() const { return *static_cast<Execution *>(subject); }
};

}  // namespace aioascend
