// SPDX-License-Identifier: Apache-2.0
// The bridge alone: nothing gets lost or comes twice between threads that push and a loop that drains.
#include "world.h"

using namespace native;

namespace {

// Pushes tickets, in lists of one to five; `owner` counts the deliveries of each.
void push_all(Bridge &bridge, std::vector<std::pair<Ticket, std::atomic<int>>> &tickets, unsigned seed) {
    std::minstd_rand random(seed);
    for (size_t i = 0; i < tickets.size();) {
        TicketList list;
        for (size_t left = 1 + random() % 5; left != 0 && i < tickets.size(); --left, ++i) {
            tickets[i].first.owner = &tickets[i].second;
            list.append(&tickets[i].first);
        }
        bridge.push(list);
    }
}

size_t count_all(Ticket *ticket) {
    size_t count = 0;
    while (ticket != nullptr) {
        Ticket *next = ticket->next;
        static_cast<std::atomic<int> *>(ticket->owner)->fetch_add(1);
        ++count;
        ticket = next;
    }
    return count;
}

using Tickets = std::vector<std::pair<Ticket, std::atomic<int>>>;

void check_once(const std::vector<Tickets> &all) {
    for (const Tickets &tickets : all) {
        for (const auto &[ticket, deliveries] : tickets) {
            CHECK_EQ(deliveries.load(), 1);
        }
    }
}

}  // namespace

TEST(every_push_wakes_the_loop_up) {
    constexpr size_t pushers = 3;
    const size_t each = static_cast<size_t>(scaled(30000));
    std::vector<Tickets> tickets;
    for (size_t i = 0; i < pushers; ++i) {
        tickets.emplace_back(each);
    }
    Bridge bridge;
    std::atomic<uint64_t> wakeups{0};
    std::thread loop([&] {
        pollfd watched{bridge.fd(), POLLIN, 0};
        for (size_t got = 0; got < pushers * each;) {  // a lost wake-up would let it sleep for ever
            poll(&watched, 1, -1);
            wakeups.fetch_add(1);
            got += count_all(bridge.drain());
        }
    });
    in_threads(pushers, [&](int i) {
        push_all(bridge, tickets[static_cast<size_t>(i)], static_cast<unsigned>(i) + 1);
    });
    loop.join();
    check_once(tickets);
    CHECK(bridge.wakeups() >= wakeups);  // each was written once, and the descriptor is quiet in between
    CHECK(bridge.drain() == nullptr);
}

TEST(a_drained_bridge_is_armed_again_by_the_next_push_only) {
    Bridge bridge;
    Tickets tickets(3);
    pollfd watched{bridge.fd(), POLLIN, 0};
    const auto push = [&](size_t i) {
        TicketList list;
        list.append(&tickets[i].first);
        tickets[i].first.owner = &tickets[i].second;
        return bridge.push(list);
    };
    CHECK_EQ(poll(&watched, 1, 0), 0);
    CHECK_EQ(push(0), size_t{1});
    CHECK_EQ(push(1), size_t{2});  // how many the loop has yet to take
    CHECK_EQ(bridge.wakeups(), uint64_t{1});
    CHECK_EQ(poll(&watched, 1, 0), 1);
    CHECK_EQ(count_all(bridge.drain()), size_t{2});
    CHECK_EQ(poll(&watched, 1, 0), 0);
    CHECK_EQ(push(2), size_t{1});
    CHECK_EQ(bridge.wakeups(), uint64_t{2});
    CHECK_EQ(count_all(bridge.drain()), size_t{1});
}

TEST(what_a_closed_bridge_gets_is_orphaned) {
    for (int round = 0; round < scaled(200); ++round) {
        std::vector<Tickets> tickets;
        tickets.emplace_back(50);
        tickets.emplace_back(50);
        size_t got = 0;
        {
            Bridge bridge;
            std::thread pusher([&] { push_all(bridge, tickets[0], 1); });
            push_all(bridge, tickets[1], 2);
            got += count_all(bridge.close());
            pusher.join();
        }
        got += count_all(Bridge::orphans().drain());
        CHECK_EQ(got, size_t{100});
        check_once(tickets);
    }
}

TEST(a_bridge_may_go_as_soon_as_its_last_ticket_was_taken) {
    for (int round = 0; round < scaled(2000); ++round) {
        auto bridge = std::make_unique<Bridge>();
        Tickets one(1);
        Bridge *raw = bridge.get();
        std::thread pusher([&] { push_all(*raw, one, 1); });
        while (count_all(bridge->drain()) == 0) {
            std::this_thread::yield();
        }
        bridge.reset();  // the push may still be writing to the descriptor
        pusher.join();
    }
}
