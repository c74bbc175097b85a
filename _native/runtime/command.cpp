// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <cstring>

#include "execution.h"

namespace aioascend {

int Command::state() const {
    if (kind == Kind::Execute) {
        return execution().state();
    }
    const int of_dst = dst.state();
    const int of_src = src.state();
    if (of_dst == Memory::Failed || of_src == Memory::Failed) {
        return Memory::Failed;
    }
    return of_dst == Memory::Pending || of_src == Memory::Pending ? Memory::Pending : Memory::Ready;
}

bool Command::on_hold() const {
    return kind == Kind::Execute && execution().on_hold();
}

bool Command::makes_task() const {
    switch (kind) {
        case Kind::Memcpy:
            return size != 0 && dst.address() != src.address();
        case Kind::Memset:
            return size != 0;
        case Kind::Execute:
        case Kind::Record:
            return true;
        case Kind::Wait:
        case Kind::Join:
            break;
    }
    return false;
}

aclError Command::memory_code() const {
    if (kind == Kind::Execute) {
        return execution().memory_code();
    }
    return dst.memory && dst.memory->code != 0 ? dst.memory->code : src.memory->code;
}

void Command::stage() const {
    if (stage_from != nullptr) {
        std::memcpy(src.address(), stage_from, size);
    }
}

aclError Command::issue(const AclApi &api, aclrtStream stream) const {
    switch (kind) {
        case Kind::Memcpy:
            return api.aclrtMemcpyAsync(dst.address(), size, src.address(), size,
                                        static_cast<aclrtMemcpyKind>(value), stream);
        case Kind::Memset:
            return api.aclrtMemsetAsync(dst.address(), size, value, size, stream);
        case Kind::Execute:
            return execution().issue(stream);
        case Kind::Record:
            return api.aclrtRecordEvent(subject, stream);
        case Kind::Wait:
            return api.aclrtStreamWaitEvent(stream, subject);
        case Kind::Join:
            return 0;
    }
    return ACL_ERROR_INVALID_PARAM;
}

}  // namespace aioascend
