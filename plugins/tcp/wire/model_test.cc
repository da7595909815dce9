// SPDX-License-Identifier: BSD-2-Clause
// Writer and Reader over a simulated stream that takes and gives random numbers of bytes. Every
// frame pushed must come out once and whole, in an order that the priorities permit.
#include <deque>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "reader.h"
#include "test_frames.h"
#include "writer.h"

namespace weft::tcp {
namespace {

using namespace testing;

struct Operation : SendItem {
  size_t number = 0;
  Frame frame;
  bool control = false;
  size_t sent_before = 0;  // bytes sent before it was pushed
};

class Model {
 public:
  explicit Model(uint64_t seed)
      : random_(seed),
        kind_(static_cast<EndpointKind>(random_.below(4))),
        order_(random_.one_in(2) ? ByteOrder::kNative : ByteOrder::kNetwork),
        max_payload_(random_.one_in(10)  ? 70000
                     : random_.one_in(2) ? 100
                                         : 2000),
        reader_(kind_, order_) {
    sink_.verdict = [this](const FrameHeader &) {
      return random_.one_in(4) ? Verdict::kStall : Verdict::kAccept;
    };
    sink_.split = [this](const FrameHeader &header) {
      size_t left = header.payload_size;
      if (random_.one_in(8)) left = random_.below(left + 1);
      std::vector<size_t> lengths(random_.below(kMaxTargetVectors) + 1);
      for (size_t &length : lengths) {
        length = &length == &lengths.back() ? left : random_.below(left + 1);
        left -= length;
      }
      return lengths;
    };
  }

  void run() {
    const size_t total = 1 + random_.below(40);
    while (operations_.size() < total || !writer_.empty() || read_ < wire_.size() ||
           reader_.stalled()) {
      switch (random_.below(4)) {
        case 0:
          if (operations_.size() < total) push();
          break;
        case 1:
        case 2:
          send();
          break;
        default:
          receive();
      }
      if (::testing::Test::HasFailure()) return;
    }
    check();
  }

 private:
  void push() {
    Operation &operation = operations_.emplace_back();
    operation.number = operations_.size();
    operation.frame = random_frame(random_, kind_, max_payload_);
    operation.set_header(operation.frame.header, order_);
    const Bytes &payload = operation.frame.payload;
    if (payload.size() <= operation.room() && random_.one_in(2)) {
      operation.copy(payload.data(), payload.size());
    } else {
      size_t at = 0;
      for (size_t i = 0; i < kMaxSendVectors; ++i) {
        const size_t left = payload.size() - at;
        const size_t n = i + 1 == kMaxSendVectors ? left : random_.below(left + 1);
        operation.add(payload.data() + at, n);
        at += n;
      }
    }
    operation.control = random_.one_in(3);
    operation.sent_before = wire_.size();
    if (operation.control) {
      writer_.push_control(operation);
    } else {
      writer_.push(operation);
    }
  }

  void send() {
    iovec iov[32];
    const size_t vectors = writer_.gather(std::span(iov).first(1 + random_.below(32)));
    size_t bytes = 0;
    for (size_t i = 0; i < vectors; ++i) bytes += iov[i].iov_len;
    size_t n = random_.one_in(3) ? bytes : random_.below(bytes + 1);
    const size_t taken = n;
    for (size_t i = 0; i < vectors && n != 0; ++i) {
      const size_t part = std::min(n, iov[i].iov_len);
      const auto *at = static_cast<const uint8_t *>(iov[i].iov_base);
      wire_.insert(wire_.end(), at, at + part);
      n -= part;
    }
    writer_.on_sent(taken, [this](SendItem &item) {
      done_.push_back(static_cast<Operation *>(&item));
      item.next = &item;  // the item belongs to the test again
    });
  }

  void receive() {
    if (reader_.stalled()) reader_.resume(sink_);
    if (reader_.stalled()) return;
    size_t n = random_.below(wire_.size() - read_ + 1);
    if (random_.one_in(2)) n = std::min<size_t>(n, random_.below(50));
    auto bytes = std::span(wire_).subspan(read_, n);
    const size_t placed = random_.one_in(2) ? place(reader_.direct(), bytes) : 0;
    reader_.on_direct(placed, sink_);
    bytes = bytes.subspan(placed);
    const size_t used = reader_.on_bytes(bytes, sink_);
    ASSERT_EQ(reader_.rejected(), std::nullopt) << text(*reader_.rejected());
    ASSERT_TRUE(used == bytes.size() || reader_.stalled());
    read_ += placed + used;
  }

  void check() {
    ASSERT_TRUE(reader_.idle());
    ASSERT_EQ(done_.size(), operations_.size());
    ASSERT_EQ(sink_.frames.size(), operations_.size());

    // The wire is the frames in the order in which they were reported done, numbered.
    Bytes expected;
    for (size_t i = 0; i < done_.size(); ++i) {
      const Bytes bytes = wire_bytes(done_[i]->frame, order_, static_cast<uint8_t>(i));
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    ASSERT_TRUE(expected == wire_);
    for (size_t i = 0; i < done_.size(); ++i) expect_same(done_[i]->frame, sink_.frames[i]);

    // Each priority keeps its order, and a control frame waits for no application frame that had
    // not begun.
    const Operation *last[2] = {nullptr, nullptr};
    size_t offset = 0;
    size_t last_application = 0;  // where it began
    for (const Operation *operation : done_) {
      if (const Operation *before = last[operation->control]) {
        EXPECT_LT(before->number, operation->number);
      }
      last[operation->control] = operation;
      if (!operation->control) {
        last_application = offset;
      } else if (last[0] != nullptr) {
        EXPECT_TRUE(last_application < operation->sent_before) << "operation " << operation->number;
      }
      offset += operation->size();
    }
  }

  Random random_;
  const EndpointKind kind_;
  const ByteOrder order_;
  const size_t max_payload_;
  std::deque<Operation> operations_;  // in the order of pushing; addresses stay
  std::vector<Operation *> done_;
  Writer writer_;
  Bytes wire_;
  size_t read_ = 0;
  CollectingSink sink_;
  CollectingReader reader_;
};

TEST(Model, EveryByteExactlyOnce) {
  for (uint64_t seed = 0; seed < sdk::rounds(5000); ++seed) {
    SCOPED_TRACE(seed);
    Model(seed).run();
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace weft::tcp
