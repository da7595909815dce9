// SPDX-License-Identifier: BSD-2-Clause
//
// The measurements themselves: templates over the transport, so that the fabric and the raw socket
// do the same work. The order of the posts, the windows, the acknowledgements and the places where
// the clock is read are the same.
//
// Example:
//     #include "bench/raw.h"
//     void Measure(RawTransport &transport, Arena &arena, const Spec &spec, Samples *samples) {
//       transport.Begin(arena, spec);
//       Prepare(transport, arena, spec, true);  // then the peer may call RunServer
//       RunClient(transport, arena, spec, samples);
//     }
//
// A Transport has: PostReceive, Send, Progress, SlowCheck, received(); and, where kHasRma is true,
// Write, Read, remote_writes(), ExpectRemoteWrites. A slot is `busy` from the post of an operation
// to its completion.
#ifndef WEFT_BENCH_PATTERNS_H_
#define WEFT_BENCH_PATTERNS_H_

#include <string.h>

#include <algorithm>

#include "bench.h"

namespace weft::bench {

// Both sides post exactly as many receives as messages will come. A receive that is left over would
// take a message of the next measurement.

// Round trips. There is one time stamp per iteration, so everything between two replies is counted.
// The next receive is posted while the message is on its way, as in programs that care for latency.
template <class Transport>
void PingPongClient(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.iterations;
  uint64_t last = NowNs();
  for (uint64_t i = 0; i < total; ++i) {
    Slot &tx = arena.tx(0);
    if (spec.check) FillPattern(tx.data, spec.size, i);
    t.Send(tx, spec.size, false);
    if (i > 0 && i + 1 < total) t.PostReceive(arena.rx(i + 1), spec.size);
    SpinUntil(t, [&] { return t.received() > i && !tx.busy; });
    if (spec.check) ExpectPattern(arena.rx(i).data, spec.size, ~i);
    const uint64_t now = NowNs();
    samples->Add(now - last);
    last = now;
  }
}

template <class Transport>
void PingPongServer(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t total = spec.iterations;
  for (uint64_t i = 0; i < total; ++i) {
    Slot &tx = arena.tx(0);
    SpinUntil(t, [&] { return t.received() > i && !tx.busy; });
    if (spec.check) {
      ExpectPattern(arena.rx(i).data, spec.size, i);
      FillPattern(tx.data, spec.size, ~i);
    }
    t.Send(tx, spec.size, false);
    if (i + 2 < total) t.PostReceive(arena.rx(i), spec.size);
  }
  SpinUntil(t, [&] { return !arena.tx(0).busy; });
}

template <class Transport>
void PingPongPrepare(Transport &t, Arena &arena, const Spec &spec) {
  for (uint64_t i = 0; i < std::min<uint64_t>(2, spec.iterations); ++i) {
    t.PostReceive(arena.rx(i), spec.size);
  }
}

// A stream from the client to the server: messages, or RMA writes whose last one before each
// acknowledgement carries remote completion data.
template <class Transport>
void StreamClient(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.messages();
  const uint64_t acks = total / spec.ack_every;
  uint64_t acks_posted = std::min<uint64_t>(Arena::kControlSlots, acks);
  uint64_t last = NowNs();
  for (uint64_t i = 0; i < total; ++i) {
    while (i - t.received() * spec.ack_every >= spec.window) {
      const uint64_t before = t.received();
      SpinUntil(t, [&] { return t.received() > before; });
    }
    while (acks_posted < acks && acks_posted < t.received() + Arena::kControlSlots) {
      t.PostReceive(arena.control_rx(acks_posted++), Arena::kControlSize);
    }
    if (i % spec.window == 0 && i > 0) {
      const uint64_t now = NowNs();
      samples->Add(now - last);
      last = now;
    }
    Slot &tx = arena.tx(i);
    if (tx.busy) SpinUntil(t, [&] { return !tx.busy; });
    if (spec.check) FillPattern(tx.data, spec.size, i);
    const bool last_of_group = (i + 1) % spec.ack_every == 0;
    if constexpr (Transport::kHasRma) {
      if (IsWrite(spec.test)) {
        t.Write(tx, spec.size, arena.rx(i), arena, last_of_group);
        continue;
      }
    }
    t.Send(tx, spec.size, spec.more && !last_of_group);
  }
  SpinUntil(t, [&] { return t.received() == acks; });
  samples->Add(NowNs() - last);
  for (uint64_t i = 0; i < arena.depth(); ++i) {
    SpinUntil(t, [&] { return !arena.tx(i).busy; });
  }
}

template <class Transport>
void StreamClientPrepare(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t acks = spec.messages() / spec.ack_every;
  for (uint64_t i = 0; i < std::min<uint64_t>(Arena::kControlSlots, acks); ++i) {
    t.PostReceive(arena.control_rx(i), Arena::kControlSize);
  }
}

template <class Transport>
void Acknowledge(Transport &t, Arena &arena, uint64_t number) {
  Slot &ack = arena.control_tx(number);
  if (ack.busy) SpinUntil(t, [&] { return !ack.busy; });
  t.Send(ack, Arena::kControlSize, false);
}

template <class Transport>
void DrainAcknowledgements(Transport &t, Arena &arena) {
  for (uint32_t i = 0; i < Arena::kControlSlots; ++i) {
    SpinUntil(t, [&] { return !arena.control_tx(i).busy; });
  }
}

template <class Transport>
void StreamServer(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t total = spec.messages();
  uint64_t posted = std::min<uint64_t>(arena.depth(), total);
  uint64_t done = 0;
  while (done < total) {
    SpinUntil(t, [&] { return t.received() > done; });
    for (const uint64_t have = t.received(); done < have; ++done) {
      if (spec.check) ExpectPattern(arena.rx(done).data, spec.size, done);
      if (posted < total) t.PostReceive(arena.rx(posted++), spec.size);
      if ((done + 1) % spec.ack_every == 0) Acknowledge(t, arena, done / spec.ack_every);
    }
  }
  DrainAcknowledgements(t, arena);
}

template <class Transport>
void StreamServerPrepare(Transport &t, Arena &arena, const Spec &spec) {
  for (uint64_t i = 0; i < std::min<uint64_t>(arena.depth(), spec.messages()); ++i) {
    t.PostReceive(arena.rx(i), spec.size);
  }
}

// --- Overlap ------------------------------------------------------------------------------------

// The client posts a window of messages and then computes, without progress. The sample is the time
// from the first post until the last message has arrived at the server. Each message begins with
// the time of the first post; the server subtracts it and sends the result with the
// acknowledgement. Both sides must have the same clock, so they must run on one host.
inline constexpr uint64_t kComputeNs = 1'000'000;

template <class Transport>
void OverlapClient(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t window = spec.window;
  for (uint64_t i = 0; i < spec.iterations; ++i) {
    const uint64_t start = NowNs();
    for (uint64_t k = 0; k < window; ++k) {
      Slot &tx = arena.tx(i * window + k);
      memcpy(tx.data, &start, sizeof start);
      t.Send(tx, spec.size, false);
    }
    while (NowNs() - start < kComputeNs) {
    }
    SpinUntil(t, [&] { return t.received() > i; });
    for (uint64_t k = 0; k < window; ++k) {
      SpinUntil(t, [&] { return !arena.tx(i * window + k).busy; });
    }
    uint64_t took = 0;
    memcpy(&took, arena.control_rx(i).data, sizeof took);
    samples->Add(took);
    if (i + Arena::kControlSlots < spec.iterations) {
      t.PostReceive(arena.control_rx(i + Arena::kControlSlots), Arena::kControlSize);
    }
  }
}

template <class Transport>
void OverlapServer(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t window = spec.window;
  for (uint64_t i = 0; i < spec.iterations; ++i) {
    SpinUntil(t, [&] { return t.received() >= (i + 1) * window; });
    const uint64_t now = NowNs();
    uint64_t start = 0;
    memcpy(&start, arena.rx((i + 1) * window - 1).data, sizeof start);
    if (i + 1 < spec.iterations) {
      for (uint64_t k = 0; k < window; ++k) {
        t.PostReceive(arena.rx((i + 1) * window + k), spec.size);
      }
    }
    const uint64_t took = now - start;
    Slot &ack = arena.control_tx(i);
    if (ack.busy) SpinUntil(t, [&] { return !ack.busy; });
    memcpy(ack.data, &took, sizeof took);
    t.Send(ack, Arena::kControlSize, false);
  }
  DrainAcknowledgements(t, arena);
}

template <class Transport>
void OverlapPrepare(Transport &t, Arena &arena, const Spec &spec, bool client) {
  if (client) {
    for (uint64_t i = 0; i < std::min<uint64_t>(Arena::kControlSlots, spec.iterations); ++i) {
      t.PostReceive(arena.control_rx(i), Arena::kControlSize);
    }
  } else {
    for (uint64_t k = 0; k < spec.window; ++k) t.PostReceive(arena.rx(k), spec.size);
  }
}

// --- RMA ----------------------------------------------------------------------------------------

template <class Transport>
void WritePingPong(Transport &t, Arena &arena, const Spec &spec, bool client, Samples *samples) {
  const uint64_t total = spec.iterations;
  Slot &tx = arena.tx(0);
  uint64_t last = NowNs();
  for (uint64_t i = 0; i < total; ++i) {
    const uint64_t mine = client ? i : ~i;
    if (!client) {
      SpinUntil(t, [&] { return t.remote_writes() > i && !tx.busy; });
      if (spec.check) ExpectPattern(arena.rx(0).data, spec.size, ~mine);
    }
    if (spec.check) FillPattern(tx.data, spec.size, mine);
    t.Write(tx, spec.size, arena.rx(0), arena, true);
    if (client) {
      SpinUntil(t, [&] { return t.remote_writes() > i && !tx.busy; });
      if (spec.check) ExpectPattern(arena.rx(0).data, spec.size, ~mine);
      const uint64_t now = NowNs();
      samples->Add(now - last);
      last = now;
    }
  }
  SpinUntil(t, [&] { return !tx.busy; });
}

template <class Transport>
void WriteStreamServer(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t groups = spec.messages() / spec.ack_every;
  for (uint64_t done = 0; done < groups;) {
    SpinUntil(t, [&] { return t.remote_writes() > done; });
    for (const uint64_t have = t.remote_writes(); done < have; ++done) {
      if (spec.check) {
        for (uint64_t i = done * spec.ack_every; i < (done + 1) * spec.ack_every; ++i) {
          ExpectPattern(arena.rx(i).data, spec.size, i);
        }
      }
      Acknowledge(t, arena, done);
    }
  }
  DrainAcknowledgements(t, arena);
}

// Reads: at most `window` in flight, a new one for each that completes. The target only drives its
// progress until the client's last message, which says that it is done.
template <class Transport>
void ReadClient(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.messages();
  uint64_t last = NowNs();
  auto finish = [&](uint64_t i) {
    Slot &slot = arena.tx(i);
    SpinUntil(t, [&] { return !slot.busy; });
    if (spec.check) {
      ExpectPattern(slot.data, spec.size, i % spec.window);
      FillPattern(slot.data, spec.size, ~i);
    }
    if ((i + 1) % spec.window == 0) {
      const uint64_t now = NowNs();
      samples->Add(now - last);
      last = now;
    }
  };
  // The latency test has more slots than its window of 1: the window limits the reads in flight.
  for (uint64_t i = 0; i < total; ++i) {
    if (i >= spec.window) finish(i - spec.window);
    t.Read(arena.tx(i), spec.size, arena.rx(i % spec.window), arena);
  }
  for (uint64_t i = total - std::min<uint64_t>(spec.window, total); i < total; ++i) finish(i);
  Acknowledge(t, arena, 0);
  DrainAcknowledgements(t, arena);
}

template <class Transport>
void ReadServer(Transport &t) {
  SpinUntil(t, [&] { return t.received() == 1; });
}

// The same work without RMA: the client sends a small request for each message of the server.
template <class Transport>
void RequestClient(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  const uint64_t total = spec.messages();
  uint64_t last = NowNs();
  for (uint64_t i = 0, sent = 0; i < total; ++i) {
    for (; sent < total && sent < i + spec.window; ++sent) {
      t.PostReceive(arena.rx(sent), spec.size);
      t.Send(arena.control_tx(sent), Arena::kControlSize, false);
    }
    SpinUntil(t, [&] { return t.received() > i; });
    if (spec.check) ExpectPattern(arena.rx(i).data, spec.size, i);
    if ((i + 1) % spec.window == 0) {
      const uint64_t now = NowNs();
      samples->Add(now - last);
      last = now;
    }
  }
}

template <class Transport>
void RequestServer(Transport &t, Arena &arena, const Spec &spec) {
  const uint64_t total = spec.messages();
  uint64_t posted = std::min<uint64_t>(Arena::kControlSlots, total);
  for (uint64_t i = 0; i < total; ++i) {
    SpinUntil(t, [&] { return t.received() > i; });
    if (posted < total) t.PostReceive(arena.control_rx(posted++), Arena::kControlSize);
    Slot &tx = arena.tx(i);
    if (spec.check) FillPattern(tx.data, spec.size, i);
    t.Send(tx, spec.size, false);
  }
}

// --- One measurement ----------------------------------------------------------------------------

// Posts the receives that must be in place before the peer may start.
template <class Transport>
void Prepare(Transport &t, Arena &arena, const Spec &spec, bool client) {
  const bool rma = Transport::kHasRma;
  if (spec.test == Test::kOverlap) {
    OverlapPrepare(t, arena, spec, client);
  } else if (spec.test == Test::kLat || (!rma && spec.test == Test::kWriteLat)) {
    PingPongPrepare(t, arena, spec);
  } else if (IsRead(spec.test)) {
    if (client) return;
    if constexpr (Transport::kHasRma) {
      if (spec.check) {
        for (uint64_t i = 0; i < spec.window; ++i) FillPattern(arena.rx(i).data, spec.size, i);
      }
      t.PostReceive(arena.control_rx(0), Arena::kControlSize);
    } else {
      for (uint64_t i = 0; i < std::min<uint64_t>(Arena::kControlSlots, spec.messages()); ++i) {
        t.PostReceive(arena.control_rx(i), Arena::kControlSize);
      }
    }
  } else if (client) {
    if (spec.test != Test::kWriteLat) StreamClientPrepare(t, arena, spec);
  } else if (!rma || !IsWrite(spec.test)) {
    StreamServerPrepare(t, arena, spec);
  }
  if constexpr (Transport::kHasRma) {
    // How many of the peer's writes announce themselves here.
    uint64_t announced = 0;
    if (spec.test == Test::kWriteLat) announced = spec.iterations;
    if (spec.test == Test::kWriteBw && !client) announced = spec.messages() / spec.ack_every;
    t.ExpectRemoteWrites(announced);
  }
}

template <class Transport>
void RunClient(Transport &t, Arena &arena, const Spec &spec, Samples *samples) {
  if constexpr (Transport::kHasRma) {
    if (spec.test == Test::kWriteLat) return WritePingPong(t, arena, spec, true, samples);
    if (IsRead(spec.test)) return ReadClient(t, arena, spec, samples);
  } else {
    if (spec.test == Test::kWriteLat) return PingPongClient(t, arena, spec, samples);
    if (IsRead(spec.test)) return RequestClient(t, arena, spec, samples);
  }
  if (spec.test == Test::kLat) return PingPongClient(t, arena, spec, samples);
  if (spec.test == Test::kOverlap) return OverlapClient(t, arena, spec, samples);
  StreamClient(t, arena, spec, samples);
}

template <class Transport>
void RunServer(Transport &t, Arena &arena, const Spec &spec) {
  if constexpr (Transport::kHasRma) {
    if (spec.test == Test::kWriteLat) return WritePingPong(t, arena, spec, false, nullptr);
    if (spec.test == Test::kWriteBw) return WriteStreamServer(t, arena, spec);
    if (IsRead(spec.test)) return ReadServer(t);
  } else {
    if (spec.test == Test::kWriteLat) return PingPongServer(t, arena, spec);
    if (IsRead(spec.test)) return RequestServer(t, arena, spec);
  }
  if (spec.test == Test::kLat) return PingPongServer(t, arena, spec);
  if (spec.test == Test::kOverlap) return OverlapServer(t, arena, spec);
  StreamServer(t, arena, spec);
}

}  // namespace weft::bench

#endif  // WEFT_BENCH_PATTERNS_H_
