// SPDX-License-Identifier: BSD-2-Clause
//
// Point to point: lengths from 0 to 4 MiB in all send modes, probes, wild cards, order.
#include <algorithm>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::Block;
using client::seed;
using client::Session;

constexpr std::size_t kMax = std::size_t{4} << 20;

/// Every small length, then around each power of two and around what 16 KiB leaves behind a header,
/// and some at random.
std::vector<std::size_t> lengths(const Session &session) {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= (session.quick() ? 40 : 300); ++n) all.push_back(n);
  for (std::size_t n = 64; n <= kMax; n *= 2) {
    for (const std::size_t length : {n - 1, n, n + 1}) {
      if (length <= kMax) all.push_back(length);
    }
  }
  for (std::size_t n = 16384 - 96; n <= 16384 + 96; n += session.quick() ? 16 : 8) all.push_back(n);
  client::Random random(session.seed());
  for (int i = 0; i < (session.quick() ? 8 : 200); ++i) all.push_back(random.length(kMax));
  return all;
}

enum Mode { kSend, kSsend, kBsend, kRsend, kIsend, kIssend, kIbsend, kIrsend, kPersistent, kModes };
const char *const kNames[] = {"MPI_Send",   "MPI_Ssend",  "MPI_Bsend",  "MPI_Rsend",    "MPI_Isend",
                              "MPI_Issend", "MPI_Ibsend", "MPI_Irsend", "MPI_Send_init"};

void send(Mode mode, void *data, int length, int to, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  switch (mode) {
    case kSend:
      MPI_Send(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      return;
    case kSsend:
      MPI_Ssend(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      return;
    case kBsend:
      MPI_Bsend(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      return;
    case kRsend:
      MPI_Rsend(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD);
      return;
    case kIsend:
      MPI_Isend(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    case kIssend:
      MPI_Issend(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    case kIbsend:
      MPI_Ibsend(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    case kIrsend:
      MPI_Irsend(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      break;
    default:
      MPI_Send_init(data, length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Request_free(&request);
      return;
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void expect_status(const MPI_Status &status, int from, int tag, std::size_t length) {
  int count = -1;
  MPI_Get_count(&status, MPI_BYTE, &count);
  EXPECT(status.MPI_SOURCE == from && status.MPI_TAG == tag && count == static_cast<int>(length),
         "the status says %d bytes from %d with tag %d; it was %zu from %d with tag %d", count,
         status.MPI_SOURCE, status.MPI_TAG, length, from, tag);
}

/// Batches of lengths in both directions of each pair at once. In every second batch the receives
/// are posted before the sends, as the ready modes require; in the others later.
void modes(Session &session) {
  const int other = session.rank() ^ 1;
  if (other >= session.size()) return;
  const std::vector<std::size_t> all = lengths(session);
  std::vector<char> room(64 * (16385 + MPI_BSEND_OVERHEAD) + 2 * (kMax + MPI_BSEND_OVERHEAD));
  MPI_Buffer_attach(room.data(), static_cast<int>(room.size()));
  int turn = 0;
  for (std::size_t begin = 0, end; begin < all.size(); begin = end, ++turn) {
    // No more in one batch than fits into the attached buffer.
    for (end = begin + 1; end < all.size() && end - begin < 64 && all[end] <= 16384; ++end) {
    }
    for (int mode = 0; mode < kModes; ++mode) {
      // Long ones in a hurry: each length in one mode, each mode for some lengths.
      if (session.quick() && all[begin] > 16384 && mode != turn % kModes) continue;
      const auto data = [&](int from, std::size_t i) {
        return seed(session.seed(), from, mode, i);
      };
      const bool early = mode == kRsend || mode == kIrsend || turn % 2 == 0;
      std::vector<Block> in;
      std::vector<MPI_Request> requests(end - begin);
      std::vector<MPI_Status> statuses(end - begin);
      const auto post = [&] {
        for (std::size_t i = begin; i < end; ++i) {
          in.emplace_back(all[i]);
          MPI_Irecv(in.back().data(), static_cast<int>(all[i]), MPI_BYTE, other, mode,
                    MPI_COMM_WORLD, &requests[i - begin]);
        }
      };
      // Both directions at once, unless the sender would wait for a receive that its peer posts
      // only after its own sends.
      const bool together = early || mode == kBsend || mode == kIbsend;
      if (early) post();
      MPI_Sendrecv(nullptr, 0, MPI_BYTE, other, 1000, nullptr, 0, MPI_BYTE, other, 1000,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int half = 0; half < 2; ++half) {
        if ((session.rank() < other) == (half == 0)) {
          for (std::size_t i = begin; i < end; ++i) {
            Block out(all[i]);
            out.fill(data(session.rank(), i));
            send(static_cast<Mode>(mode), out.data(), static_cast<int>(all[i]), other, mode);
            out.expect(all[i], data(session.rank(), i), "the sender's own buffer");
          }
        } else if (!together) {
          post();
          MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data());
        }
      }
      if (!early && together) post();
      if (together)
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data());
      for (std::size_t i = begin; i < end; ++i) {
        expect_status(statuses[i - begin], other, mode, all[i]);
        in[i - begin].expect(all[i], data(other, i), kNames[mode]);
        session.moved(all[i]);
      }
    }
  }
  void *back = nullptr;
  int size = 0;
  MPI_Buffer_detach(&back, &size);
  EXPECT(back == room.data(), "MPI_Buffer_detach returns another buffer");
}

/// All ranks send to the right and receive from the left at once, over every distance; also to
/// themselves and to MPI_PROC_NULL.
void sendrecv(Session &session) {
  const int n = session.size();
  const int rank = session.rank();
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{777},
                                   std::size_t{16384}, std::size_t{65537}, std::size_t{1} << 20}) {
    for (int far = 0; far < n; ++far) {
      if (session.quick() && length > 70000 && far > 1) break;
      const int to = (rank + far) % n;
      const int from = (rank + n - far) % n;
      const int count = static_cast<int>(length);
      Block out(length);
      Block in(length);
      out.fill(seed(rank, to, length));
      MPI_Status status;
      MPI_Sendrecv(out.data(), count, MPI_BYTE, to, far, in.data(), count, MPI_BYTE, from, far,
                   MPI_COMM_WORLD, &status);
      expect_status(status, from, far, length);
      in.expect(length, seed(from, rank, length), "MPI_Sendrecv");
      MPI_Sendrecv_replace(out.data(), count, MPI_BYTE, to, 7, from, 7, MPI_COMM_WORLD, &status);
      expect_status(status, from, 7, length);
      out.expect(length, seed(from, rank, length), "MPI_Sendrecv_replace");
      if (far != 0) session.moved(2 * length);
    }
  }
  MPI_Status status;
  Block in(10);
  MPI_Send(in.data(), 10, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
  MPI_Recv(in.data(), 10, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
  EXPECT(status.MPI_SOURCE == MPI_PROC_NULL, "MPI_PROC_NULL has sent");
}

/// Messages of one tag arrive in their order; those of many tags can be taken in any.
void order(Session &session) {
  constexpr int kMany = 200;
  const int n = session.size();
  const int to = (session.rank() + 1) % n;
  const int from = (session.rank() + n - 1) % n;
  std::vector<MPI_Request> requests(2 * kMany);
  std::vector<int> numbers(2 * kMany);
  for (int i = 0; i < kMany; ++i) {
    numbers[i] = i;
    MPI_Isend(&numbers[i], 1, MPI_INT, to, 5, MPI_COMM_WORLD, &requests[i]);
    numbers[kMany + i] = i;
    MPI_Isend(&numbers[kMany + i], 1, MPI_INT, to, 100 + i, MPI_COMM_WORLD, &requests[kMany + i]);
  }
  for (int i = kMany - 1; i >= 0; --i) {
    int got = -1;
    MPI_Recv(&got, 1, MPI_INT, from, 100 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(got == i, "tag %d brought %d", 100 + i, got);
  }
  for (int i = 0; i < kMany; ++i) {
    int got = -1;
    MPI_Recv(&got, 1, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(got == i, "message %d of a tag came in place of %d", got, i);
  }
  MPI_Waitall(2 * kMany, requests.data(), MPI_STATUSES_IGNORE);

  // A short message may not pass a long one that was sent first.
  const int big = 1 << 20;
  Block long_out(big);
  Block long_in(big);
  Block short_in(big);
  long_out.fill(seed(session.rank(), 1));
  MPI_Isend(long_out.data(), big, MPI_BYTE, to, 9, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(long_out.data(), 3, MPI_BYTE, to, 9, MPI_COMM_WORLD, &requests[1]);
  MPI_Status status[2];
  MPI_Irecv(long_in.data(), big, MPI_BYTE, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &requests[2]);
  MPI_Irecv(short_in.data(), big, MPI_BYTE, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(2, requests.data() + 2, status);
  expect_status(status[0], from, 9, big);
  expect_status(status[1], from, 9, 3);
  long_in.expect(big, seed(from, 1), "the long one of two");
  short_in.expect(3, seed(from, 1), "the short one of two");
  MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
  session.moved(big);
}

enum How { kAnyBoth, kAnyTag, kAnySource, kProbe, kIprobe, kMprobe, kImprobe, kHows };

struct Received {
  MPI_Status status;
  MPI_Status probed;  // with a probe: what it said
};

/// Receives one message into `in`, by a wild card or after a probe.
Received receive(int how, int source, int tag, Block &in) {
  Received got{};
  MPI_Message message;
  int there = 0;
  switch (how) {
    case kProbe:
      MPI_Probe(source, tag, MPI_COMM_WORLD, &got.probed);
      break;
    case kIprobe:
      while (!there) MPI_Iprobe(source, tag, MPI_COMM_WORLD, &there, &got.probed);
      break;
    case kMprobe:
      MPI_Mprobe(source, tag, MPI_COMM_WORLD, &message, &got.probed);
      break;
    case kImprobe:
      while (!there) MPI_Improbe(source, tag, MPI_COMM_WORLD, &there, &message, &got.probed);
      break;
    default:
      break;
  }
  if (how == kProbe || how == kIprobe) source = got.probed.MPI_SOURCE, tag = got.probed.MPI_TAG;
  const int max = static_cast<int>(in.size());
  if (how == kMprobe) {
    MPI_Mrecv(in.data(), max, MPI_BYTE, &message, &got.status);
  } else if (how == kImprobe) {
    MPI_Request request;
    MPI_Imrecv(in.data(), max, MPI_BYTE, &message, &request);
    MPI_Wait(&request, &got.status);
  } else {
    MPI_Recv(in.data(), max, MPI_BYTE, source, tag, MPI_COMM_WORLD, &got.status);
  }
  return got;
}

/// Every rank sends to every rank. The seed tells lengths and tags, but not the order of arrival.
void wild_cards(Session &session) {
  const int n = session.size();
  const int rank = session.rank();
  const int each = session.quick() ? 12 : 100;
  const int max = 100000;
  for (int how = 0; how < kHows; ++how) {
    const auto length = [&](int from, int to, int i) {
      return client::Random(seed(session.seed(), how, from, to, i)).length(max);
    };
    const auto tag = [&](int from, int i) { return how == kAnySource ? i : (from * 7 + i) % 1000; };
    std::vector<MPI_Request> requests;
    std::vector<Block> out;
    for (int to = 0; to < n; ++to) {
      for (int i = 0; i < each; ++i) out.emplace_back(length(rank, to, i));
    }
    for (int i = 0; i < each; ++i) {
      for (int to = 0; to < n; ++to) {
        Block &block = out[to * each + i];
        block.fill(seed(how, rank, to, i));
        requests.emplace_back();
        MPI_Isend(block.data(), static_cast<int>(block.size()), MPI_BYTE, to, tag(rank, i),
                  MPI_COMM_WORLD, &requests.back());
      }
    }
    std::vector<int> next(n, 0);
    for (int k = 0; k < n * each; ++k) {
      Block in(max);
      const auto [status, probed] = receive(how, how == kAnyTag ? k % n : MPI_ANY_SOURCE,
                                            how == kAnySource ? k / n : MPI_ANY_TAG, in);
      const int from = status.MPI_SOURCE;
      EXPECT(from >= 0 && from < n, "a message from rank %d of %d", from, n);
      const int i = next[from]++;
      EXPECT(i < each, "rank %d has sent more than %d messages", from, each);
      if (how == kAnySource)
        EXPECT(i == k / n, "message %d of rank %d came in round %d", i, from, k / n);
      expect_status(status, from, tag(from, i), length(from, rank, i));
      if (how >= kProbe) expect_status(probed, from, tag(from, i), length(from, rank, i));
      in.expect(length(from, rank, i), seed(how, from, rank, i), "a message that was not named");
      if (from != rank) session.moved(length(from, rank, i));
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  int there = 1;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  EXPECT(!there, "MPI_Iprobe finds a message where all have been received");
}

}  // namespace

void client::run_p2p(Session &session) {
  modes(session);
  sendrecv(session);
  order(session);
  MPI_Barrier(MPI_COMM_WORLD);  // those of the next would match the wild cards of this
  wild_cards(session);
}
