// SPDX-License-Identifier: BSD-2-Clause
//
// The measurements themselves: templates over the transport, so that the fabric and the raw socket
// do the same work. The order of the posts, the windows, the acknowledgements and the places where
// the clock is read are the same.
//
// Example:
//     #include "bench/raw.h"
//     void measure(RawTransport &transport, Arena &arena, const Spec &spec, Samples *samples) {
//       transport.begin(arena, spec);
//       prepare(transport, arena, spec, true);  // then the peer may call run_server
//       run_client(transport, arena, spec, samples);
//     }
//
// A Transport has: post_receive, send, progress, slow_check, received(); and, where kHasRma is
// true, write, read, remote_writes(), expect_remote_writes. A slot is `busy` from the post of an
// operation to its completion.
#ifndef WEFT_BENCH_PATTERNS_H
#define WEFT_BENCH_PATTERNS_H

#include <string.h>

#include <algorithm>

#include "bench.h"

namespace weft::bench {

// Both sides post exactly as many receives as messages will come. A receive that is left over would
// take a message of the next measurement.

// Round trips. There is one time stamp per iteration, so everything between two replies is counted.
// The next receive is posted while the message is on its way, as in programs that care for latency.
template <class Transport>
void ping_pong_client(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.iterations;
  uint64_t last = now_ns();
  for (uint64_t i = 0; i < total; ++i) {
    Slot &tx = arena.tx(0);
    if (spec.check) fill_pattern(tx.data, spec.size, i);
    t.send(tx, spec.size, false);
    if (i > 0 && i + 1 < total) t.post_receive(arena.rx(i + 1), spec.size);
    spin_until(t, [&] { return t.received() > i && !tx.busy; });
    if (spec.check) expect_pattern(arena.rx(i).data, spec.size, ~i);
    const uint64_t now = now_ns();
    samples->add(now - last);
    last = now;
  }
}

template <class Transport>
void ping_pong_server(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t total = spec.iterations;
  for (uint64_t i = 0; i < total; ++i) {
    Slot &tx = arena.tx(0);
    spin_until(t, [&] { return t.received() > i && !tx.busy; });
    if (spec.check) {
      expect_pattern(arena.rx(i).data, spec.size, i);
      fill_pattern(tx.data, spec.size, ~i);
    }
    t.send(tx, spec.size, false);
    if (i + 2 < total) t.post_receive(arena.rx(i), spec.size);
  }
  spin_until(t, [&] { return !arena.tx(0).busy; });
}

template <class Transport>
void ping_pong_prepare(Transport &t, Arena &arena, const Spec &spec) {
  for (uint64_t i = 0; i < std::min<uint64_t>(2, spec.iterations); ++i) {
    t.post_receive(arena.rx(i), spec.size);
  }
}

// A stream from the client to the server: messages, or RMA writes whose last one before each
// acknowledgement carries remote completion data.
template <class Transport>
void stream_client(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.messages();
  const uint64_t acks = total / spec.ack_every;
  uint64_t acks_posted = std::min<uint64_t>(Arena::kControlSlots, acks);
  uint64_t last = now_ns();
  for (uint64_t i = 0; i < total; ++i) {
    while (i - t.received() * spec.ack_every >= spec.window) {
      const uint64_t before = t.received();
      spin_until(t, [&] { return t.received() > before; });
    }
    while (acks_posted < acks && acks_posted < t.received() + Arena::kControlSlots) {
      t.post_receive(arena.control_rx(acks_posted++), Arena::kControlSize);
    }
    if (i % spec.window == 0 && i > 0) {
      const uint64_t now = now_ns();
      samples->add(now - last);
      last = now;
    }
    Slot &tx = arena.tx(i);
    if (tx.busy) spin_until(t, [&] { return !tx.busy; });
    if (spec.check) fill_pattern(tx.data, spec.size, i);
    const bool last_of_group = (i + 1) % spec.ack_every == 0;
    if constexpr (Transport::kHasRma) {
      if (is_write(spec.test)) {
        t.write(tx, spec.size, arena.rx(i), arena, last_of_group);
        continue;
      }
    }
    t.send(tx, spec.size, spec.more && !last_of_group);
  }
  spin_until(t, [&] { return t.received() == acks; });
  samples->add(now_ns() - last);
  for (uint64_t i = 0; i < arena.depth(); ++i) {
    spin_until(t, [&] { return !arena.tx(i).busy; });
  }
}

template <class Transport>
void stream_client_prepare(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t acks = spec.messages() / spec.ack_every;
  for (uint64_t i = 0; i < std::min<uint64_t>(Arena::kControlSlots, acks); ++i) {
    t.post_receive(arena.control_rx(i), Arena::kControlSize);
  }
}

template <class Transport>
void acknowledge(Transport &t, Arena &arena, uint64_t number) {
  Slot &ack = arena.control_tx(number);
  if (ack.busy) spin_until(t, [&] { return !ack.busy; });
  t.send(ack, Arena::kControlSize, false);
}

template <class Transport>
void drain_acknowledgements(Transport &t, Arena &arena) {
  for (uint32_t i = 0; i < Arena::kControlSlots; ++i) {
    spin_until(t, [&] { return !arena.control_tx(i).busy; });
  }
}

template <class Transport>
void stream_server(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t total = spec.messages();
  uint64_t posted = std::min<uint64_t>(arena.depth(), total);
  uint64_t done = 0;
  while (done < total) {
    spin_until(t, [&] { return t.received() > done; });
    for (const uint64_t have = t.received(); done < have; ++done) {
      if (spec.check) expect_pattern(arena.rx(done).data, spec.size, done);
      if (posted < total) t.post_receive(arena.rx(posted++), spec.size);
      if ((done + 1) % spec.ack_every == 0) acknowledge(t, arena, done / spec.ack_every);
    }
  }
  drain_acknowledgements(t, arena);
}

template <class Transport>
void stream_server_prepare(Transport &t, Arena &arena, const Spec &spec) {
  for (uint64_t i = 0; i < std::min<uint64_t>(arena.depth(), spec.messages()); ++i) {
    t.post_receive(arena.rx(i), spec.size);
  }
}

// --- Overlap ------------------------------------------------------------------------------------

// The client posts a window of messages and then computes, without progress. The sample is the time
// from the first post until the last message has arrived at the server. Each message begins with
// the time of the first post; the server subtracts it and sends the result with the
// acknowledgement. Both sides must have the same clock, so they must run on one host.
inline constexpr uint64_t kComputeNs = 1'000'000;

template <class Transport>
void overlap_client(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t window = spec.window;
  for (uint64_t i = 0; i < spec.iterations; ++i) {
    const uint64_t start = now_ns();
    for (uint64_t k = 0; k < window; ++k) {
      Slot &tx = arena.tx(i * window + k);
      memcpy(tx.data, &start, sizeof start);
      t.send(tx, spec.size, false);
    }
    while (now_ns() - start < kComputeNs) {
    }
    spin_until(t, [&] { return t.received() > i; });
    for (uint64_t k = 0; k < window; ++k) {
      spin_until(t, [&] { return !arena.tx(i * window + k).busy; });
    }
    uint64_t took = 0;
    memcpy(&took, arena.control_rx(i).data, sizeof took);
    samples->add(took);
    if (i + Arena::kControlSlots < spec.iterations) {
      t.post_receive(arena.control_rx(i + Arena::kControlSlots), Arena::kControlSize);
    }
  }
}

template <class Transport>
void overlap_server(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t window = spec.window;
  for (uint64_t i = 0; i < spec.iterations; ++i) {
    spin_until(t, [&] { return t.received() >= (i + 1) * window; });
    const uint64_t now = now_ns();
    uint64_t start = 0;
    memcpy(&start, arena.rx((i + 1) * window - 1).data, sizeof start);
    if (i + 1 < spec.iterations) {
      for (uint64_t k = 0; k < window; ++k) {
        t.post_receive(arena.rx((i + 1) * window + k), spec.size);
      }
    }
    const uint64_t took = now - start;
    Slot &ack = arena.control_tx(i);
    if (ack.busy) spin_until(t, [&] { return !ack.busy; });
    memcpy(ack.data, &took, sizeof took);
    t.send(ack, Arena::kControlSize, false);
  }
  drain_acknowledgements(t, arena);
}

template <class Transport>
void overlap_prepare(Transport &t, Arena &arena, const Spec &spec, bool client) {
  if (client) {
    for (uint64_t i = 0; i < std::min<uint64_t>(Arena::kControlSlots, spec.iterations); ++i) {
      t.post_receive(arena.control_rx(i), Arena::kControlSize);
    }
  } else {
    for (uint64_t k = 0; k < spec.window; ++k) t.post_receive(arena.rx(k), spec.size);
  }
}

// --- RMA ----------------------------------------------------------------------------------------

template <class Transport>
void write_ping_pong(Transport &t, Arena &arena, const Spec &spec, bool client, Samples *samples) {
  const uint64_t total = spec.iterations;
  Slot &tx = arena.tx(0);
  uint64_t last = now_ns();
  for (uint64_t i = 0; i < total; ++i) {
    const uint64_t mine = client ? i : ~i;
    if (!client) {
      spin_until(t, [&] { return t.remote_writes() > i && !tx.busy; });
      if (spec.check) expect_pattern(arena.rx(0).data, spec.size, ~mine);
    }
    if (spec.check) fill_pattern(tx.data, spec.size, mine);
    t.write(tx, spec.size, arena.rx(0), arena, true);
    if (client) {
      spin_until(t, [&] { return t.remote_writes() > i && !tx.busy; });
      if (spec.check) expect_pattern(arena.rx(0).data, spec.size, ~mine);
      const uint64_t now = now_ns();
      samples->add(now - last);
      last = now;
    }
  }
  spin_until(t, [&] { return !tx.busy; });
}

template <class Transport>
void write_stream_server(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t groups = spec.messages() / spec.ack_every;
  for (uint64_t done = 0; done < groups;) {
    spin_until(t, [&] { return t.remote_writes() > done; });
    for (const uint64_t have = t.remote_writes(); done < have; ++done) {
      if (spec.check) {
        for (uint64_t i = done * spec.ack_every; i < (done + 1) * spec.ack_every; ++i) {
          expect_pattern(arena.rx(i).data, spec.size, i);
        }
      }
      acknowledge(t, arena, done);
    }
  }
  drain_acknowledgements(t, arena);
}

// Reads: at most `window` in flight, a new one for each that completes. The target only drives its
// progress until the client's last message, which says that it is done.
template <class Transport>
void read_client(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.messages();
  uint64_t last = now_ns();
  auto finish = [&](uint64_t i) {
    Slot &slot = arena.tx(i);
    spin_until(t, [&] { return !slot.busy; });
    if (spec.check) {
      expect_pattern(slot.data, spec.size, i % spec.window);
      fill_pattern(slot.data, spec.size, ~i);
    }
    if ((i + 1) % spec.window == 0) {
      const uint64_t now = now_ns();
      samples->add(now - last);
      last = now;
    }
  };
  // The latency test has more slots than its window of 1: the window limits the reads in flight.
  for (uint64_t i = 0; i < total; ++i) {
    if (i >= spec.window) finish(i - spec.window);
    t.read(arena.tx(i), spec.size, arena.rx(i % spec.window), arena);
  }
  for (uint64_t i = total - std::min<uint64_t>(spec.window, total); i < total; ++i) finish(i);
  acknowledge(t, arena, 0);
  drain_acknowledgements(t, arena);
}

template <class Transport>
void read_server(Transport &t) {
  spin_until(t, [&] { return t.received() == 1; });
}

// The same work without RMA: the client sends a small request for each message of the server.
template <class Transport>
void request_client(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.messages();
  uint64_t last = now_ns();
  for (uint64_t i = 0, sent = 0; i < total; ++i) {
    for (; sent < total && sent < i + spec.window; ++sent) {
      t.post_receive(arena.rx(sent), spec.size);
      t.send(arena.control_tx(sent), Arena::kControlSize, false);
    }
    spin_until(t, [&] { return t.received() > i; });
    if (spec.check) expect_pattern(arena.rx(i).data, spec.size, i);
    if ((i + 1) % spec.window == 0) {
      const uint64_t now = now_ns();
      samples->add(now - last);
      last = now;
    }
  }
}

template <class Transport>
void request_server(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t total = spec.messages();
  uint64_t posted = std::min<uint64_t>(Arena::kControlSlots, total);
  for (uint64_t i = 0; i < total; ++i) {
    spin_until(t, [&] { return t.received() > i; });
    if (posted < total) t.post_receive(arena.control_rx(posted++), Arena::kControlSize);
    Slot &tx = arena.tx(i);
    if (spec.check) fill_pattern(tx.data, spec.size, i);
    t.send(tx, spec.size, false);
  }
}

// --- One measurement ----------------------------------------------------------------------------

// Posts the receives that must be in place before the peer may start.
template <class Transport>
void prepare(Transport &t, Arena &arena, const Spec &spec, bool client) {
  const bool rma = Transport::kHasRma;
  if (spec.test == Test::kOverlap) {
    overlap_prepare(t, arena, spec, client);
  } else if (spec.test == Test::kLat || (!rma && spec.test == Test::kWriteLat)) {
    ping_pong_prepare(t, arena, spec);
  } else if (is_read(spec.test)) {
    if (client) return;
    if constexpr (Transport::kHasRma) {
      if (spec.check) {
        for (uint64_t i = 0; i < spec.window; ++i) fill_pattern(arena.rx(i).data, spec.size, i);
      }
      t.post_receive(arena.control_rx(0), Arena::kControlSize);
    } else {
      for (uint64_t i = 0; i < std::min<uint64_t>(Arena::kControlSlots, spec.messages()); ++i) {
        t.post_receive(arena.control_rx(i), Arena::kControlSize);
      }
    }
  } else if (client) {
    if (spec.test != Test::kWriteLat) stream_client_prepare(t, arena, spec);
  } else if (!rma || !is_write(spec.test)) {
    stream_server_prepare(t, arena, spec);
  }
  if constexpr (Transport::kHasRma) {
    // How many of the peer's writes announce themselves here.
    uint64_t announced = 0;
    if (spec.test == Test::kWriteLat) announced = spec.iterations;
    if (spec.test == Test::kWriteBw && !client) announced = spec.messages() / spec.ack_every;
    t.expect_remote_writes(announced);
  }
}

template <class Transport>
void run_client(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  if constexpr (Transport::kHasRma) {
    if (spec.test == Test::kWriteLat) return write_ping_pong(t, arena, spec, true, samples);
    if (is_read(spec.test)) return read_client(t, arena, spec, samples);
  } else {
    if (spec.test == Test::kWriteLat) return ping_pong_client(t, arena, spec, samples);
    if (is_read(spec.test)) return request_client(t, arena, spec, samples);
  }
  if (spec.test == Test::kLat) return ping_pong_client(t, arena, spec, samples);
  if (spec.test == Test::kOverlap) return overlap_client(t, arena, spec, samples);
  stream_client(t, arena, spec, samples);
}

template <class Transport>
void run_server(Transport &t, Arena &arena, const Spec &spec) {
  if constexpr (Transport::kHasRma) {
    if (spec.test == Test::kWriteLat) return write_ping_pong(t, arena, spec, false, nullptr);
    if (spec.test == Test::kWriteBw) return write_stream_server(t, arena, spec);
    if (is_read(spec.test)) return read_server(t);
  } else {
    if (spec.test == Test::kWriteLat) return ping_pong_server(t, arena, spec);
    if (is_read(spec.test)) return request_server(t, arena, spec);
  }
  if (spec.test == Test::kLat) return ping_pong_server(t, arena, spec);
  if (spec.test == Test::kOverlap) return overlap_server(t, arena, spec);
  stream_server(t, arena, spec);
}

}  // namespace weft::bench

#endif  // WEFT_BENCH_PATTERNS_H
