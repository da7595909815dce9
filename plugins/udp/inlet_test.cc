// SPDX-License-Identifier: BSD-2-Clause
// Inlet over a real socket of this host: which datagrams go to which receives, alone and joined.
#include "plugins/udp/inlet.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugins/udp/test_socket.h"

namespace weft::udp {
namespace {

// A receive of a test. The buffer is longer than the receive, so that the test finds bytes written
// behind its end.
struct Buffer {
  explicit Buffer(size_t size) : bytes(size + 8, 0xee), size(size) {}
  Bytes bytes;
  size_t size;
};

struct Received {
  Buffer *buffer;
  size_t placed, length;
  sdk::SockAddr source;
};

class InletTest : public ::testing::Test, public InletSink {
 protected:
  explicit InletTest(bool offload = true)
      : inlet_(*this, engine_, queue_, *scratch_, counters_, offload) {
    UniqueFd fd = *open_socket(AF_INET, {.recvbuf_size = 8 << 20});
    if (!bind_socket(fd.get(), sdk::SockAddr::loopback(AF_INET))) throw std::runtime_error("bind");
    name_ = *sdk::socket_name(fd.get());
    inlet_.open(std::move(fd), true);
    inlet_.listen();
  }
  ~InletTest() {
    inlet_.close();
    for (Buffer *b : buffers_) delete b;
  }

  Buffer *post(size_t size, size_t parts = 1) {
    auto *buffer = new Buffer(parts != 0 ? size : 0);
    buffers_.push_back(buffer);
    iovec iov[sdk::kIovLimit];
    for (size_t i = 0, at = 0; i < parts; ++i) {
      const size_t end = size * (i + 1) / parts;
      iov[i] = {buffer->bytes.data() + at, end - at};
      at = end;
    }
    if (queue_.post(iov, parts, buffer, 0) != 0) throw std::runtime_error("post");
    inlet_.on_posted();
    return buffer;
  }
  void post_many(size_t count, size_t size) {
    for (size_t i = 0; i < count; ++i) post(size);
  }
  // Reads until the socket is empty. On loopback all sent datagrams are there.
  void progress() {
    size_t before;
    do {
      before = received_.size();
      for (int i = 0; i < 3; ++i) engine_.progress();
    } while (received_.size() != before);
  }
  void expect(const Bytes &datagram) {
    ASSERT_FALSE(received_.empty()) << "a datagram of " << datagram.size() << " is missing";
    const Received r = received_.front();
    received_.pop_front();
    const size_t placed = std::min(datagram.size(), r.buffer->size);
    ASSERT_EQ(r.length, datagram.size());
    ASSERT_EQ(r.placed, placed);
    ASSERT_TRUE(
        std::equal(datagram.begin(), datagram.begin() + ptrdiff_t(placed), r.buffer->bytes.begin()))
        << "of " << datagram.size();
    for (size_t i = r.buffer->size; i < r.buffer->bytes.size(); ++i)
      ASSERT_EQ(r.buffer->bytes[i], 0xee) << "a byte behind the buffer was written";
    ASSERT_EQ(r.source, peer_.name());
  }
  // Sends runs of equal datagrams until the inlet has turned UDP_GRO on.
  void make_it_join(size_t segment) {
    for (int round = 0; round < 20 && !inlet_.joins(); ++round) {
      post_many(64, 2000);
      const Bytes run = pattern(segment * 40, unsigned(round));
      peer_.send_cut(name_, run, uint16_t(segment));
      progress();
      for (size_t i = 0; i < 40; ++i)
        expect(Bytes(run.begin() + ptrdiff_t(i * segment),
                     run.begin() + ptrdiff_t((i + 1) * segment)));
    }
    ASSERT_TRUE(inlet_.joins());
    while (queue_.front() != nullptr) queue_.release(queue_.pop());
  }
  void expect_cut(const Bytes &run, size_t segment) {
    for (size_t at = 0; at < run.size(); at += segment)
      expect(Bytes(run.begin() + ptrdiff_t(at),
                   run.begin() + ptrdiff_t(std::min(run.size(), at + segment))));
  }

  // ---- InletSink ----
  uint32_t index_of(const sdk::SockAddr &source) override {
    return source.family() == AF_UNSPEC ? sdk::Av::kNone : 7;
  }
  void on_received(sdk::PostedRecv &r, size_t placed, size_t length, uint32_t index,
                   const sdk::SockAddr &source) override {
    EXPECT_EQ(index, index_);
    received_.push_back({static_cast<Buffer *>(r.context), placed, length, source});
    queue_.release(&r);
  }
  void on_writable() override { ++writable_; }
  void on_socket_error(int error) override { ADD_FAILURE() << strerror(error); }
  void on_network_error(const NetworkError &error, std::span<const char> datagram) override {
    errors_.push_back({error, {datagram.begin(), datagram.end()}});
    received_before_error_ = received_.size();
  }

  std::vector<std::pair<NetworkError, Bytes>> errors_;
  size_t received_before_error_ = 0;
  sdk::Engine engine_{false};
  sdk::RecvQueue queue_{4096};
  std::unique_ptr<Inlet::Scratch> scratch_ = std::make_unique<Inlet::Scratch>();
  Counters counters_;
  Inlet inlet_;
  TestSocket peer_;
  sdk::SockAddr name_;
  std::deque<Received> received_;
  std::vector<Buffer *> buffers_;
  int writable_ = 0;
  uint32_t index_ = 7;  // of every sender
};

// An error for a port without a socket has the port and the beginning of the datagram. It does not
// delay datagrams of other senders.
TEST_F(InletTest, ReportsErrorsOfTheNetwork) {
  ASSERT_TRUE(inlet_.tell_errors());
  sdk::SockAddr nobody;
  {
    TestSocket gone;
    nobody = gone.name();
  }
  const Bytes bytes = pattern(300, 1), hello = pattern(100, 2);
  ASSERT_EQ(::sendto(inlet_.fd(), bytes.data(), bytes.size(), 0, nobody.c(), nobody.size()),
            ssize_t(bytes.size()));
  post_many(3, 200);
  peer_.send(name_, hello);
  for (int i = 0; i < 1000 && errors_.empty(); ++i) engine_.progress();
  ASSERT_FALSE(errors_.empty());
  EXPECT_EQ(errors_[0].first.to, nobody);
  EXPECT_EQ(errors_[0].first.error, ECONNREFUSED);
  EXPECT_TRUE(errors_[0].first.remote);
  ASSERT_GE(errors_[0].second.size(), 88u);
  EXPECT_TRUE(std::equal(errors_[0].second.begin(), errors_[0].second.end(), bytes.begin()));
  progress();
  expect(hello);
}

// A peer may send its last datagram and close its port before the socket is read. The datagram is
// delivered first, however many calls return the error.
TEST_F(InletTest, DeliversEarlierDatagramsBeforeTheError) {
  ASSERT_TRUE(inlet_.tell_errors());
  sdk::SockAddr nobody;
  {
    TestSocket gone;
    nobody = gone.name();
  }
  for (const unsigned many : {1u, 3u, 100u}) {
    errors_.clear();
    for (unsigned i = 0; i < many; ++i) peer_.send(name_, pattern(50, i));
    for (unsigned i = 0; i < 4; ++i) {
      char byte = 0;
      // A send after an error may fail with that error.
      while (::sendto(inlet_.fd(), &byte, 1, 0, nobody.c(), nobody.size()) < 0)
        ASSERT_EQ(errno, ECONNREFUSED);
    }
    if (many == 3) inlet_.on_stale_error();
    post_many(many + 10, 200);
    for (int i = 0; i < 1000 && errors_.size() < 4; ++i) engine_.progress();
    EXPECT_EQ(errors_.size(), 4u);
    EXPECT_EQ(received_before_error_, many);
    for (unsigned i = 0; i < many; ++i) expect(pattern(50, i));
  }
}

TEST_F(InletTest, ReadsDatagramsOneByOne) {
  for (size_t size : {0u, 1u, 100u, 1472u, 65507u}) {
    post(size);
    peer_.send(name_, pattern(size, 1));
    progress();
    expect(pattern(size, 1));
  }
  EXPECT_FALSE(inlet_.joins());
}

TEST_F(InletTest, ReadsNothingWithoutAPostedReceive) {
  peer_.send(name_, pattern(10, 1));
  peer_.send(name_, pattern(20, 2));
  progress();
  EXPECT_TRUE(received_.empty());
  post(100);
  progress();
  expect(pattern(10, 1));
  post(100);
  progress();
  expect(pattern(20, 2));
}

TEST_F(InletTest, ReadsManyAtOnceInOrder) {
  for (unsigned i = 0; i < 300; ++i) peer_.send(name_, pattern(i % 70, i));
  post_many(300, 64);
  progress();
  for (unsigned i = 0; i < 300; ++i) expect(pattern(i % 70, i));
  EXPECT_EQ(counters_.truncated.value(), 4u * 5);  // of 65 to 69 bytes
}

TEST_F(InletTest, ScattersIntoVectors) {
  for (size_t parts : {1, 2, 3, 4}) {
    post(1001, parts);
    peer_.send(name_, pattern(1001, 5));
    progress();
    expect(pattern(1001, 5));
  }
  post(0, 0);
  peer_.send(name_, pattern(50, 5));
  progress();
  expect(pattern(50, 5));
}

TEST_F(InletTest, ReportsTheLengthOfATruncatedDatagram) {
  for (size_t parts : {1, 2}) {
    post(10, parts);
    peer_.send(name_, pattern(3000, 5));
    progress();
    expect(pattern(3000, 5));
  }
  EXPECT_EQ(counters_.truncated.value(), 2u);
}

TEST_F(InletTest, JoinsARunAndCutsItAgain) {
  make_it_join(1200);
  post_many(200, 2000);
  const Bytes run = pattern(1200 * 45 + 77, 3);
  for (int i = 0; i < 3; ++i) peer_.send_cut(name_, run, 1200);
  progress();
  for (int i = 0; i < 3; ++i) expect_cut(run, 1200);
  EXPECT_GE(counters_.coalesced.value(), 3u);
  EXPECT_TRUE(received_.empty());
}

TEST_F(InletTest, TakesSegmentsOfAnySizeAfterJoining) {
  make_it_join(1000);
  for (size_t segment : {1000, 999, 1001, 40, 1472, 1, 700}) {
    SCOPED_TRACE(segment);
    const Bytes run = pattern(segment * 30 + segment / 2, 3);
    post_many(31, 1500);
    peer_.send_cut(name_, run, uint16_t(segment));
    peer_.send(name_, pattern(33, 1));
    progress();
    expect_cut(run, segment);
    if (segment / 2 == 0) {
      expect(pattern(33, 1));
    }
    post(1500);
    progress();
    if (segment / 2 != 0) expect(pattern(33, 1));
    while (queue_.front() != nullptr) queue_.release(queue_.pop());
  }
}

TEST_F(InletTest, HoldsSegmentsUntilThereAreReceives) {
  make_it_join(800);
  const Bytes run = pattern(800 * 50, 9);
  post_many(3, 1000);
  peer_.send_cut(name_, run, 800);
  progress();
  EXPECT_EQ(received_.size(), 3u);
  peer_.send(name_, pattern(5, 5));
  for (int i = 3; i < 50; ++i) {
    post(1000);
    progress();
    EXPECT_EQ(received_.size(), size_t(i) + 1);
  }
  post(1000);
  progress();
  expect_cut(run, 800);
  expect(pattern(5, 5));
}

// A datagram that was read without its source gets no source later, least of all a wrong one.
TEST_F(InletTest, ReadsSourcesOnlyWhileTheyAreWanted) {
  make_it_join(800);
  const Bytes run = pattern(800 * 10, 9);
  inlet_.name_sources(false);
  index_ = sdk::Av::kNone;
  const auto come = [&](size_t count) {
    progress();
    EXPECT_EQ(received_.size(), count);
    received_.clear();
  };
  post_many(3, 1000);
  peer_.send_cut(name_, run, 800);
  come(3);
  inlet_.name_sources(true);
  post_many(7, 1000);
  come(7);
  index_ = 7;
  post_many(1, 1000);
  peer_.send(name_, pattern(5, 5));
  come(1);
}

TEST_F(InletTest, TruncatesSegmentsInShortReceives) {
  make_it_join(800);
  const Bytes run = pattern(800 * 10, 9);
  for (int i = 0; i < 10; ++i) post(size_t(i) * 100, i % 2 == 0 ? 1 : 3);
  peer_.send_cut(name_, run, 800);
  progress();
  expect_cut(run, 800);
}

// Random input from a seed: each datagram arrives once, in order, with its bytes.
class InletRandom : public InletTest, public ::testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, InletRandom, ::testing::Range(0u, sdk::rounds(60)));

TEST_P(InletRandom, EveryDatagramArrivesOnceAndInOrder) {
  std::mt19937 random(GetParam());
  const auto below = [&](size_t n) { return size_t(random() % n); };
  if (GetParam() % 3 != 0) make_it_join(600 + below(900));
  const size_t usual = 1 + below(1472);
  std::deque<Bytes> sent;
  size_t in_flight = 0;
  for (int step = 0; step < 400; ++step) {
    switch (below(6)) {
      case 0: {
        const Bytes one = pattern(below(4) == 0 ? below(5000) : below(1473), unsigned(step));
        if (in_flight > 1 << 20) break;
        peer_.send(name_, one);
        sent.push_back(one);
        in_flight += one.size() + 1000;
        break;
      }
      case 1: {
        const size_t segment = below(3) == 0 ? 1 + below(1472) : usual;
        const Bytes run =
            pattern(segment * (1 + below(std::min<size_t>(60, 64000 / segment))) - below(segment),
                    unsigned(step));
        if (in_flight > 1 << 20) break;
        peer_.send_cut(name_, run, uint16_t(segment));
        for (size_t at = 0; at < run.size(); at += segment)
          sent.emplace_back(run.begin() + ptrdiff_t(at),
                            run.begin() + ptrdiff_t(std::min(run.size(), at + segment)));
        in_flight += 2 * run.size() + 1000;
        break;
      }
      case 2:
      case 3:
        for (size_t i = below(40); i-- > 0 && queue_.left() != 0;)
          post(below(5) == 0 ? below(3000) : 1500, below(5) == 0 ? below(5) : 1);
        break;
      default:
        engine_.progress();
    }
    while (!received_.empty()) {
      ASSERT_FALSE(sent.empty());
      in_flight -= std::min(in_flight, sent.front().size());
      ASSERT_NO_FATAL_FAILURE(expect(sent.front()));
      sent.pop_front();
    }
    if (sent.empty()) in_flight = 0;
  }
  while (!sent.empty()) {
    post(1500);
    engine_.progress();
    while (!received_.empty()) {
      ASSERT_NO_FATAL_FAILURE(expect(sent.front()));
      sent.pop_front();
    }
  }
  EXPECT_EQ(counters_.dropped.value(), 0u);
}

class InletWithoutOffload : public InletTest {
 protected:
  InletWithoutOffload() : InletTest(false) {}
};

TEST_F(InletWithoutOffload, NeverJoins) {
  for (int round = 0; round < 10; ++round) {
    post_many(64, 2000);
    const Bytes run = pattern(1000 * 60, 2);
    peer_.send_cut(name_, run, 1000);
    progress();
    expect_cut(run, 1000);
  }
  EXPECT_FALSE(inlet_.joins());
}

// docs/man/weft-udp.7, Memory.
TEST(InletBudget, MemoryIsAsDocumented) {
  EXPECT_LE(sizeof(Inlet), 320u);
  EXPECT_LE(sizeof(Inlet::Scratch), 8u << 10);
  EXPECT_LE(sizeof(sdk::PostedRecv) + sizeof(void *), 128u);
  EXPECT_EQ(Inlet::kAreas * Inlet::kJoined, 1u << 20);
}

TEST_F(InletTest, ReportsRoomForOutputWhileItIsWanted) {
  engine_.progress();
  EXPECT_EQ(writable_, 0);
  inlet_.want_output(true);
  engine_.progress();
  EXPECT_EQ(writable_, 1);
  inlet_.want_output(false);
  engine_.progress();
  EXPECT_EQ(writable_, 1);
}

}  // namespace
}  // namespace weft::udp
