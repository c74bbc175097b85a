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
    size_t offset = 0;
    void *pointer = nullptr;

    void *address() const { return memory ? memory->address(offset) : pointer; }
    int state() const { return memory ? memory->state.load(std::memory_order_acquire) : int(Memory::Ready); }
};

struct Command {
    Kind kind = Kind::Memcpy;
    bool may_block = false;  // must not be issued from an event loop's thread
    Place dst, src;
    size_t size = 0;
    aclrtMemcpyKind direction = ACL_MEMCPY_DEFAULT;
    const void *stage_from = nullptr;  // pageable bytes that go into src first
    int32_t value = 0;
    aclrtEvent event = nullptr;
    Execution *execution = nullptr;

    int state() const;                 // of all the memory it needs: Pending, Ready or Failed
    bool makes_task() const;           // surely; an empty copy does not, a wait for what is done already need not
    aclError memory_code() const;      // the code of a failed allocation
    void stage() const;                // copy stage_from into src
    aclError issue(const AclApi &api, aclrtStream stream) const;
};

}  // namespace aioascend
