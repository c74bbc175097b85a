// SPDX-License-Identifier: Apache-2.0
// Handles that stay wrong for ever once destroyed. A handle is not an address but an index with a generation,
// so any value a caller passes - destroyed, of another type, random - is told from a live one without
// touching its memory. Objects live in slots that are never returned to the heap: a use that races with a
// destroy meets a valid object.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

namespace aclsim {

enum class HandleKind : uint64_t { Context = 1, Stream = 2, Event = 3, Notify = 4 };

template <class T, HandleKind kind>
class HandleTable {
public:
    // Finds or makes a free slot; the object keeps whatever its last owner left. Null: the table is full.
    T *allocate() {
        std::lock_guard<std::mutex> lock(mutex_);
        uint32_t index;
        if (free_.size() > min_free || (size_ == capacity && !free_.empty())) {
            index = free_.front();
            free_.pop_front();
        } else if (size_ < capacity) {
            index = size_;
            if (index % chunk_size == 0) {
                chunks_[index / chunk_size].store(new Chunk, std::memory_order_release);
            }
            ++size_;
        } else {
            return nullptr;
        }
        Slot &slot = *slot_at(index);
        slot.object.handle = encode(index, slot.generation.load(std::memory_order_relaxed) + 1);
        return &slot.object;
    }

    // From now on the handle is valid. Separate from allocate, so that nobody finds a half-made object.
    void publish(T &object) {
        const auto value = reinterpret_cast<uintptr_t>(object.handle);
        slot_at(index_of(value))->generation.store(generation_of(value), std::memory_order_release);
    }

    // The handle becomes invalid. False: it was not valid any more.
    bool retract(T &object) {
        const auto value = reinterpret_cast<uintptr_t>(object.handle);
        uint32_t live_generation = generation_of(value);
        const uint32_t dead = (live_generation + 1) & generation_mask;
        return slot_at(index_of(value))->generation.compare_exchange_strong(live_generation, dead);
    }

    // The slot of a retracted (or never published) object may be reused, after many others.
    void recycle(T &object) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto value = reinterpret_cast<uintptr_t>(object.handle);
        slot_at(index_of(value))->generation.store((generation_of(value) + 1) & generation_mask);
        free_.push_back(index_of(value));
    }

    T *find(const void *handle) const {
        const auto value = reinterpret_cast<uintptr_t>(handle);
        if ((value & 0xff) != (static_cast<uint64_t>(kind) << 4) || value >> 47 != 0) {
            return nullptr;
        }
        Slot *slot = slot_at(index_of(value));
        // Odd generations are live ones.
        if (slot == nullptr || (generation_of(value) & 1) == 0 ||
            slot->generation.load(std::memory_order_acquire) != generation_of(value)) {
            return nullptr;
        }
        return &slot->object;
    }

private:
    struct Slot {
        std::atomic<uint32_t> generation{0};
        T object;
    };
    static constexpr uint32_t chunk_size = 256;
    static constexpr uint32_t capacity = 1u << 20;
    static constexpr size_t min_free = 1024;
    static constexpr uint32_t generation_mask = (1u << 19) - 1;
    using Chunk = std::array<Slot, chunk_size>;

    // 47 bits, as an address has: generation (19) | index (20) | kind << 4 (8).
    static void *encode(uint32_t index, uint32_t generation) {
        const uint64_t value = (static_cast<uint64_t>(generation & generation_mask) << 28) |
                               (static_cast<uint64_t>(index) << 8) | (static_cast<uint64_t>(kind) << 4);
        return reinterpret_cast<void *>(static_cast<uintptr_t>(value));
    }
    static uint32_t index_of(uintptr_t value) { return (value >> 8) & (capacity - 1); }
    static uint32_t generation_of(uintptr_t value) { return (value >> 28) & generation_mask; }
    Slot *slot_at(uint32_t index) const {
        Chunk *chunk = chunks_[index / chunk_size].load(std::memory_order_acquire);
        return chunk == nullptr ? nullptr : &(*chunk)[index % chunk_size];
    }

    mutable std::mutex mutex_;
    std::array<std::atomic<Chunk *>, capacity / chunk_size> chunks_{};
    std::deque<uint32_t> free_;
    uint32_t size_ = 0;
};

}  // namespace aclsim
