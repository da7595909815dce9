// SPDX-License-Identifier: BSD-2-Clause
// Everything at once, at random: both sides send, inject, read and write in all forms and sizes,
// with all flags, receive late or early, into plain and multi-receive buffers, and every byte and
// every completion is compared with a model. A failure prints its seed; WEFT_TEST_SEED repeats it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

constexpr size_t kRegion = 1 << 16;  // half of it is only read, the other half written

// What one side did, does, and must see.
struct Party {
  Side *side = nullptr;
  Party *peer = nullptr;
  bool selective = false;

  // The peer reads the first half of this and writes the second.
  const uint8_t *memory = nullptr;
  std::vector<uint8_t> model;
  fid_mr *region = nullptr;

  struct Sending {  // until its completion
    std::vector<uint8_t> bytes;
    std::vector<uint8_t> expected;  // of a read
    bool read = false;
  };
  std::deque<std::unique_ptr<Sending>> transmits;  // in order of completion
  struct Message {
    std::vector<uint8_t> bytes;
    std::optional<uint64_t> data;
    bool write = false;  // a write with data
  };
  std::deque<Message> expected;  // by the peer, in order

  struct Receive {
    std::vector<uint8_t> buffer;
    size_t size = 0;
    bool multi = false;
    size_t used = 0;
  };
  std::deque<std::unique_ptr<Receive>> receives;
  size_t sent = 0, received = 0, posted_bytes = 0;
};

class Random : public ::testing::TestWithParam<unsigned> {
 protected:
  size_t upto(size_t n) { return std::uniform_int_distribution<size_t>(0, n)(random); }
  bool one_in(size_t n) { return upto(n - 1) == 0; }

  size_t some_size() {
    static constexpr size_t kLimits[] = {0, 16, 128, 4096, 16384, 100000, 1000000};
    return upto(kLimits[upto(one_in(8) ? 6 : 4)]);
  }

  std::vector<iovec> cut(std::vector<uint8_t> &bytes) {
    std::vector<size_t> marks{0, bytes.size()};
    for (size_t i = upto(3); i > 0; --i) marks.push_back(upto(bytes.size()));
    std::sort(marks.begin(), marks.end());
    std::vector<iovec> iov;
    for (size_t i = 0; i + 1 < marks.size(); ++i)
      iov.push_back({bytes.data() + marks[i], marks[i + 1] - marks[i]});
    return iov;
  }

  uint64_t some_flags() {
    uint64_t flags = FI_COMPLETION;
    if (one_in(6) && !on_a_device) flags |= FI_DELIVERY_COMPLETE;
    if (one_in(6)) flags |= FI_TRANSMIT_COMPLETE;
    if (one_in(8) && fences) flags |= FI_FENCE;
    if (one_in(3)) flags |= FI_MORE;
    return flags;
  }

  // At the first half of `all` or so, and behind it, or in one piece.
  std::vector<fi_rma_iov> places(const Party &p, uint64_t at, size_t all) {
    const uint64_t from = p.peer->side->base_of(p.peer->memory) + at;
    const uint64_t key = fi_mr_key(p.peer->region);
    if (p.side->info->tx_attr->rma_iov_limit < 2) return {{from, all, key}};
    const size_t first = upto(all);
    return {{from, first, key}, {from + first, all - first, key}};
  }

  // Whether a message of `p` may find no receive.
  bool may_wait(const Party &p) const {
    return waits || p.peer->receives.size() > p.expected.size();
  }

  // One message; false: it has to wait.
  bool send(Party &p) {
    if (!may_wait(p)) return false;
    Party::Message message;
    message.bytes = pattern(some_size(), unsigned(random()));
    auto sending = std::make_unique<Party::Sending>();
    sending->bytes = message.bytes;
    std::vector<uint8_t> &bytes = sending->bytes;
    fid_ep *ep = p.side->ep;
    const bool small = bytes.size() <= p.side->info->tx_attr->inject_size;
    const uint64_t data = random();
    ssize_t rc;
    bool completes = true;
    switch (upto(small ? 5 : 3)) {
      case 0:
        rc = fi_send(ep, bytes.data(), bytes.size(), nullptr, 0, sending.get());
        completes = !p.selective;
        break;
      case 1: {
        const auto iov = cut(bytes);
        rc = fi_sendv(ep, iov.data(), nullptr, iov.size(), 0, sending.get());
        completes = !p.selective;
        break;
      }
      case 2:
        if (has_data) message.data = data;
        rc = has_data ? fi_senddata(ep, bytes.data(), bytes.size(), nullptr, data, 0, sending.get())
                      : fi_send(ep, bytes.data(), bytes.size(), nullptr, 0, sending.get());
        completes = !p.selective;
        break;
      case 3: {
        const auto iov = cut(bytes);
        uint64_t flags = some_flags();
        if (small && one_in(3)) flags |= FI_INJECT;
        fi_msg msg{};
        msg.msg_iov = iov.data();
        msg.iov_count = iov.size();
        msg.context = sending.get();
        msg.data = data;
        if (has_data && one_in(2)) {
          flags |= FI_REMOTE_CQ_DATA;
          message.data = data;
        }
        rc = fi_sendmsg(ep, &msg, flags);
        if (rc == 0 && flags & FI_INJECT) std::fill(bytes.begin(), bytes.end(), 0xdd);
        break;
      }
      case 4:
        rc = fi_inject(ep, bytes.data(), bytes.size(), 0);
        if (rc == 0) std::fill(bytes.begin(), bytes.end(), 0xdd);
        completes = false;
        break;
      default:
        if (has_data) message.data = data;
        rc = has_data ? fi_injectdata(ep, bytes.data(), bytes.size(), data, 0)
                      : fi_inject(ep, bytes.data(), bytes.size(), 0);
        if (rc == 0) std::fill(bytes.begin(), bytes.end(), 0xdd);
        completes = false;
    }
    if (rc == -FI_EAGAIN) return false;
    must(rc);
    p.expected.push_back(std::move(message));
    ++p.sent;
    keep(p, std::move(sending), completes);
    return true;
  }

  // A buffer without a completion of its own must live until a later operation has completed.
  void keep(Party &p, std::unique_ptr<Party::Sending> sending, bool completes) {
    if (completes) {
      p.transmits.push_back(std::move(sending));
    } else {
      silent.push_back(std::move(sending));
    }
  }

  bool write(Party &p) {
    auto sending = std::make_unique<Party::Sending>();
    const size_t size = upto(one_in(4) ? kRegion / 2 : 300);
    sending->bytes = pattern(size, unsigned(random()));
    const uint64_t at = kRegion / 2 + upto(kRegion / 2 - size), key = fi_mr_key(p.peer->region);
    const std::vector<uint8_t> bytes = sending->bytes;
    const bool tells = has_data && one_in(3);
    const uint64_t data = random();
    bool completes = true;
    ssize_t rc;
    if (size <= p.side->info->tx_attr->inject_size && one_in(2)) {
      const uint64_t to = p.peer->side->base_of(p.peer->memory) + at;
      rc = tells ? fi_inject_writedata(p.side->ep, sending->bytes.data(), size, data, 0, to, key)
                 : fi_inject_write(p.side->ep, sending->bytes.data(), size, 0, to, key);
      completes = false;
    } else {
      const auto iov = cut(sending->bytes);
      const auto to = places(p, at, size);
      fi_msg_rma msg{};
      msg.msg_iov = iov.data();
      msg.iov_count = iov.size();
      msg.rma_iov = to.data();
      msg.rma_iov_count = to.size();
      msg.context = sending.get();
      msg.data = data;
      rc = fi_writemsg(p.side->ep, &msg, some_flags() | (tells ? FI_REMOTE_CQ_DATA : 0));
    }
    if (rc == -FI_EAGAIN) return false;
    must(rc);
    std::copy(bytes.begin(), bytes.end(), p.peer->model.begin() + ptrdiff_t(at));
    if (tells) p.expected.push_back({.bytes = {}, .data = data, .write = true});
    ++p.sent;
    keep(p, std::move(sending), completes);
    return true;
  }

  bool read(Party &p) {
    auto sending = std::make_unique<Party::Sending>();
    sending->read = true;
    const size_t size = upto(one_in(4) ? kRegion / 2 : 300), at = upto(kRegion / 2 - size);
    sending->bytes.assign(size, 0);
    sending->expected.assign(p.peer->model.begin() + ptrdiff_t(at),
                             p.peer->model.begin() + ptrdiff_t(at + size));
    const auto iov = cut(sending->bytes);
    const auto from = places(p, at, size);
    fi_msg_rma msg{};
    msg.msg_iov = iov.data();
    msg.iov_count = iov.size();
    msg.rma_iov = from.data();
    msg.rma_iov_count = from.size();
    msg.context = sending.get();
    const ssize_t rc =
        fi_readmsg(p.side->ep, &msg, FI_COMPLETION | (one_in(8) && fences ? FI_FENCE : 0));
    if (rc == -FI_EAGAIN) return false;
    must(rc);
    ++p.sent;
    keep(p, std::move(sending), true);
    return true;
  }

  void post(Party &p) {
    auto receive = std::make_unique<Party::Receive>();
    receive->multi = one_in(4) && has_multi_recv;
    receive->size = receive->multi ? kRoom : 1000000;
    // Not 1 MB of zeroes for each of thousands: a few buffers, recycled.
    if (spare.empty()) spare.emplace_back(kRoom);
    receive->buffer.swap(spare.back());
    spare.pop_back();
    iovec iov[2];
    fi_msg msg{};
    msg.msg_iov = iov;
    msg.context = receive.get();
    if (receive->multi) {
      iov[0] = {receive->buffer.data(), receive->size};
      msg.iov_count = 1;
    } else {
      const size_t first = upto(receive->size);
      iov[0] = {receive->buffer.data(), first};
      iov[1] = {receive->buffer.data() + first, receive->size - first};
      msg.iov_count = 2;
    }
    const ssize_t rc =
        fi_recvmsg(p.side->ep, &msg, FI_COMPLETION | (receive->multi ? FI_MULTI_RECV : 0));
    if (rc == -FI_EAGAIN) return spare.push_back(std::move(receive->buffer));
    must(rc);
    p.receives.push_back(std::move(receive));
  }

  void retire(Party &p, Party::Receive *receive) {
    const auto it = std::find_if(p.receives.begin(), p.receives.end(),
                                 [receive](auto &r) { return r.get() == receive; });
    ASSERT_NE(it, p.receives.end());
    spare.push_back(std::move((*it)->buffer));
    p.receives.erase(it);
  }

  void drain(Party &p) {
    while (auto done = poll_cq(p.side->tx_cq)) {
      ASSERT_EQ(done->err, 0) << fi_strerror(done->err);
      ASSERT_FALSE(p.transmits.empty());
      // Sends and writes complete in order, reads in order; between the two kinds nothing is
      // promised.
      auto *sending = static_cast<Party::Sending *>(done->context);
      const auto it = std::find_if(p.transmits.begin(), p.transmits.end(),
                                   [sending](auto &t) { return t.get() == sending; });
      ASSERT_NE(it, p.transmits.end()) << "a completion that nobody asked for";
      if (sending->read) {
        ASSERT_EQ(sending->bytes, sending->expected);
      }
      p.transmits.erase(it);
    }
    while (auto done = poll_cq(p.side->receive_cq())) {
      ASSERT_EQ(done->err, 0) << fi_strerror(done->err);
      if (done->flags == FI_MULTI_RECV) {
        retire(p, static_cast<Party::Receive *>(done->context));
        continue;
      }
      ASSERT_FALSE(p.peer->expected.empty());
      const Party::Message message = std::move(p.peer->expected.front());
      p.peer->expected.pop_front();
      ++p.received;
      if (message.write) {
        ASSERT_EQ(done->flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA),
                  uint64_t(FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
        ASSERT_EQ(done->data, p.side->arriving(*message.data));
        if (p.side->info->mode & FI_RX_CQ_DATA)
          retire(p, static_cast<Party::Receive *>(done->context));
        continue;
      }
      ASSERT_NE(done->flags & FI_RECV, 0u);
      ASSERT_EQ(done->flags & FI_REMOTE_CQ_DATA, message.data ? uint64_t(FI_REMOTE_CQ_DATA) : 0);
      if (message.data) {
        ASSERT_EQ(done->data, p.side->arriving(*message.data));
      }
      ASSERT_EQ(done->len, message.bytes.size());
      auto *receive = static_cast<Party::Receive *>(done->context);
      const uint8_t *at =
          receive->multi ? static_cast<uint8_t *>(done->buf) : receive->buffer.data();
      ASSERT_TRUE(std::equal(message.bytes.begin(), message.bytes.end(), at))
          << message.bytes.size() << " bytes";
      if (receive->multi) {
        ASSERT_GE(at, receive->buffer.data() + receive->used);
        receive->used = size_t(at - receive->buffer.data()) + message.bytes.size();
        ASSERT_LE(receive->used, receive->size);
      }
      if (!receive->multi || done->flags & FI_MULTI_RECV) retire(p, receive);
    }
  }

  bool on_a_device = is_of_a_device(FI_EP_MSG);
  // Soft-RoCE waits for ever behind a fence once it has repeated something (Linux 6.1).
  bool fences = !on_a_device || has_devices_inside();
  bool has_multi_recv = false;
  bool has_data = true, waits = true;  // remote data; messages wait for receives
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Party::Sending>> silent;
  static constexpr size_t kRoom = 1200000;
  std::vector<std::vector<uint8_t>> spare;  // of kRoom bytes
};

std::vector<unsigned> seeds() {
  if (const char *seed = std::getenv("WEFT_TEST_SEED"))
    return {unsigned(std::strtoul(seed, nullptr, 0))};
  return {1, 2, 3, 4, 5, 6, 7, 8};
}
INSTANTIATE_TEST_SUITE_P(Seeds, Random, ::testing::ValuesIn(seeds()));

TEST_P(Random, EveryByteAndEveryCompletionIsRight) {
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(GetParam()));
  random.seed(GetParam());
  Options options;
  options.caps = FI_MSG | FI_RMA | FI_MULTI_RECV;
  has_multi_recv = find_info(options) != nullptr;
  if (!has_multi_recv) options.caps = FI_MSG | FI_RMA;
  if (one_in(2)) options.tx_size = 16 + upto(100);
  if (one_in(3)) options.progress = FI_PROGRESS_AUTO;
  if (one_in(3)) options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  if (one_in(3)) options.tx_cq.size = options.rx_cq.size = 8 + upto(64);
  if (one_in(3)) options.rx_cq.wait_obj = FI_WAIT_FD;
  std::vector<uint8_t> memory[2] = {pattern(kRegion, 11), pattern(kRegion, 12)};
  Pair pair(options);
  has_data = pair.a.info->domain_attr->cq_data_size != 0;
  waits = pair.a.info->domain_attr->resource_mgmt == FI_RM_ENABLED;
  Party parties[2];
  for (int i = 0; i < 2; ++i) {
    Party &p = parties[i];
    p.side = i == 0 ? &pair.a : &pair.b;
    p.peer = &parties[1 - i];
    p.selective = options.tx_cq_flags != 0;
    p.memory = memory[i].data();
    p.model = memory[i];
    p.region = p.side->expose(memory[i].data(), kRegion, FI_REMOTE_READ | FI_REMOTE_WRITE, 77);
  }
  constexpr size_t kOperations = 1500;
  const Deadline deadline;
  while (!HasFatalFailure() && !deadline.passed()) {
    bool over = true;
    for (Party &p : parties) {
      // Bursts of posts and long pauses, as in real programs.
      if (!one_in(3)) {
        for (size_t i = upto(8); i > 0 && p.sent < kOperations; --i) {
          const bool done = one_in(4) ? write(p) : one_in(4) ? read(p) : send(p);
          if (!done) break;
        }
      }
      if (!one_in(4)) {
        while (p.receives.size() < 6 && !one_in(4)) post(p);
      }
      if (!one_in(3)) drain(p);
      if (one_in(2)) p.side->progress();
      over = over && p.sent == kOperations && p.transmits.empty() && p.expected.empty();
    }
    if (over) break;
  }
  if (HasFatalFailure()) return;
  for (Party &p : parties) {
    EXPECT_EQ(p.sent, kOperations);
    EXPECT_TRUE(p.expected.empty()) << p.expected.size() << " messages never came";
    EXPECT_TRUE(p.transmits.empty()) << p.transmits.size() << " completions never came";
  }
  // All writes are there when a read that follows them is answered.
  for (Party &p : parties) {
    uint8_t byte;
    pair.post([&] {
      return fi_read(p.side->ep, &byte, 1, nullptr, 0, p.peer->side->base_of(p.peer->memory),
                     fi_mr_key(p.peer->region), &byte);
    });
    if (p.selective) {
      fi_msg msg{};
      if (on_a_device) post(*p.peer);  // which completes when there is a receive
      pair.post([&] { return fi_sendmsg(p.side->ep, &msg, FI_FENCE | FI_COMPLETION); });
    }
    EXPECT_EQ(pair.wait(p.side->tx_cq).err, 0);
  }
  for (int i = 0; i < 2; ++i) {
    parties[i].side->regions.clear();
    EXPECT_TRUE(memory[i] == parties[i].model) << "memory of side " << i;
  }
}

}  // namespace
}  // namespace weft::conformance
