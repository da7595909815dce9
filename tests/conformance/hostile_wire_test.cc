// SPDX-License-Identifier: BSD-2-Clause
// Bytes that no honest peer sends, from raw sockets to the tcp provider. A connection that sends
// such bytes ends and is counted once. Nothing else happens, and other connections go on.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "tests/conformance/counters.h"
#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes.push_back(char(value));
  return bytes;
}

template <class T>
std::string little(T value) {
  return {reinterpret_cast<const char *>(&value), sizeof value};
}

// A connection message: version, type, private length (big endian), 20 bytes of nothing, the order
// probe.
std::string hello(int version = 3, int type = 0, int private_length = 0,
                  const std::string &data = "") {
  return bytes_of({version, type, private_length >> 8, private_length & 0xff}) +
         std::string(20, '\0') + little(uint64_t(1)) + data;
}

// A frame's header: version, op, flags, op data, count of remote vectors, size of the header, id,
// size of the frame.
std::string frame(int op, int flags, uint64_t payload, const std::string &extension = "",
                  int rma_count = 0, int op_data = 0) {
  const int header = 16 + int(extension.size());
  return bytes_of({3, op, flags & 0xff, flags >> 8, op_data, rma_count, header, 0}) +
         little(uint64_t(header) + payload) + extension;
}

std::string vector_of(uint64_t address, uint64_t length, uint64_t key) {
  return little(address) + little(length) + little(key);
}

// A raw socket, connected to a listener.
class Stranger {
 public:
  explicit Stranger(const std::string &address) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd_, reinterpret_cast<const sockaddr *>(address.data()),
                  socklen_t(address.size())) != 0)
      throw std::runtime_error("connect");
  }
  ~Stranger() { hang_up(); }
  void hang_up() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void say(const std::string &bytes) {
    [[maybe_unused]] const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Whether the other side ended the connection, as far as it is known without waiting. What it
  // sent is dropped.
  bool ended() {
    char scrap[65536];
    for (;;) {
      const ssize_t n = ::recv(fd_, scrap, sizeof scrap, MSG_DONTWAIT);
      if (n > 0) continue;
      return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }
  }
  std::string hear(size_t size, Side &side) {
    std::string bytes;
    EXPECT_TRUE(until(
        [&] {
          char buffer[4096];
          const ssize_t n =
              ::recv(fd_, buffer, std::min(sizeof buffer, size - bytes.size()), MSG_DONTWAIT);
          if (n > 0) bytes.append(buffer, size_t(n));
          return bytes.size() == size || n == 0;
        },
        {&side}));
    return bytes;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

class HostileWire : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!stack().starts_with("tcp")) GTEST_SKIP() << "these bytes are the tcp provider's";
    pair = std::make_unique<Pair>();
    before = read_counters(pair->b.fabric);
  }
  void TearDown() override {
    if (!pair) return;
    // An honest connection of the same fabric never noticed.
    std::vector<uint8_t> out = pattern(3000, 1), in(3000);
    must(fi_recv(pair->b.ep, in.data(), in.size(), nullptr, 0, &in));
    must(fi_send(pair->a.ep, out.data(), out.size(), nullptr, 0, &out));
    EXPECT_EQ(pair->wait(pair->b.rx_cq).err, 0);
    EXPECT_EQ(in, out);
  }
  std::string address() const { return pair->listener->address(); }
  // The counters that changed, and by how much.
  std::map<std::string, uint64_t> changes() const {
    std::map<std::string, uint64_t> changed;
    for (const auto &[name, value] : read_counters(pair->b.fabric))
      if (value != before.at(name)) changed[name] = value - before.at(name);
    return changed;
  }
  void expect_refused(Stranger &stranger, const std::string &counter) {
    EXPECT_TRUE(pair->until([&] { return stranger.ended(); }, std::chrono::seconds(10)));
    expect_counted(counter);
    EXPECT_FALSE(poll_eq(pair->b.eq).has_value()) << "the application is not bothered";
  }
  void expect_counted(const std::string &counter) {
    const std::map<std::string, uint64_t> expected{{counter, 1}};
    EXPECT_TRUE(pair->until([&] { return changes() == expected; }, std::chrono::seconds(10)))
        << ::testing::PrintToString(changes());
  }

  std::unique_ptr<Pair> pair;
  std::map<std::string, uint64_t> before;
};

using Counts = std::map<std::string, uint64_t>;

// ---- before a connection ----

TEST_F(HostileWire, APortScan) {
  Stranger stranger(address());
  pair->settle();
  stranger.hang_up();
  expect_counted("connections_refused_version");
  EXPECT_FALSE(poll_eq(pair->b.eq).has_value());
}

TEST_F(HostileWire, AReset) {
  Stranger stranger(address());
  pair->settle();
  const linger now{1, 0};
  setsockopt(stranger.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  stranger.hang_up();
  expect_counted("connections_refused_version");
}

TEST_F(HostileWire, AnHttpRequest) {
  Stranger stranger(address());
  stranger.say("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/7.88.1\r\n\r\n");
  expect_refused(stranger, "connections_refused_version");
}

TEST_F(HostileWire, ATlsHello) {
  Stranger stranger(address());
  stranger.say(bytes_of({0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}) + std::string(500, 'r'));
  expect_refused(stranger, "connections_refused_version");
}

TEST_F(HostileWire, GarbageOfManyLengths) {
  for (const size_t size : {1u, 31u, 32u, 33u, 288u, 5000u, 200000u}) {
    const Counts start = changes();
    Stranger stranger(address());
    const std::vector<uint8_t> garbage = pattern(size, unsigned(size));
    std::string bytes(garbage.begin(), garbage.end());
    bytes[0] = 0x55;  // not by chance the version
    stranger.say(bytes);
    if (size < 32) stranger.hang_up();
    EXPECT_TRUE(pair->until([&] { return changes() != start; }, std::chrono::seconds(10))) << size;
    if (size >= 32) {
      EXPECT_TRUE(pair->until([&] { return stranger.ended(); }, std::chrono::seconds(10))) << size;
    }
  }
  EXPECT_EQ(changes(), (Counts{{"connections_refused_version", 7}}));
}

TEST_F(HostileWire, AnotherVersion) {
  for (const int version : {0, 1, 2, 4, 255}) {
    Stranger stranger(address());
    stranger.say(hello(version));
    EXPECT_TRUE(pair->until([&] { return stranger.ended(); }, std::chrono::seconds(10)));
  }
  EXPECT_EQ(changes(), (Counts{{"connections_refused_version", 5}}));
}

TEST_F(HostileWire, AnAnswerWhereARequestIsDue) {
  for (const int type : {1, 2, 5, 6, 7, 255}) {
    Stranger stranger(address());
    stranger.say(hello(3, type));
    EXPECT_TRUE(pair->until([&] { return stranger.ended(); }, std::chrono::seconds(10)));
  }
  EXPECT_EQ(changes(), (Counts{{"connections_refused_version", 6}}));
}

TEST_F(HostileWire, APrivateLengthAboveTheLimit) {
  for (const int length : {257, 300, 32768, 65535}) {
    Stranger stranger(address());
    stranger.say(hello(3, 0, length, std::string(size_t(length), 'x')));
    EXPECT_TRUE(pair->until([&] { return stranger.ended(); }, std::chrono::seconds(10)));
  }
  EXPECT_EQ(changes(), (Counts{{"connections_refused_version", 4}}));
  EXPECT_FALSE(poll_eq(pair->b.eq).has_value());
}

TEST_F(HostileWire, APrivateLengthThatIsNotFilled) {
  Stranger stranger(address());
  stranger.say(hello(3, 0, 100, std::string(99, 'x')));
  pair->settle();
  EXPECT_FALSE(poll_eq(pair->b.eq).has_value());
  stranger.hang_up();
  expect_counted("connections_refused_version");
}

TEST_F(HostileWire, ARequestInSingleBytesIsGood) {
  Stranger stranger(address());
  const int on = 1;
  setsockopt(stranger.fd(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
  for (const char byte : hello(3, 0, 5, "hello")) {
    EXPECT_FALSE(poll_eq(pair->b.eq).has_value());
    stranger.say(std::string(1, byte));
    pair->progress();
  }
  const Event request = next_request(pair->b, {&pair->a, &pair->b});
  EXPECT_EQ(request.data, "hello");
  must(fi_reject(pair->listener->pep, request.info->handle, "no", 2));
  const std::string answer = stranger.hear(34, pair->b);
  EXPECT_EQ(answer.substr(0, 4), bytes_of({3, 6, 0, 2}));
  EXPECT_EQ(answer.substr(32), "no");
  EXPECT_EQ(changes(), Counts{});
}

TEST(HostileWireLimits, HalfOpenRequestsTimeOut) {
  if (stack() != "tcp") GTEST_SKIP() << "names a parameter of tcp";
  if (!in_fresh_process({"FI_TCP_HANDSHAKE_TIMEOUT_MS=200"})) return;
  Pair pair;
  const Counts before = read_counters(pair.b.fabric);
  const auto refused = [&](const char *name) {
    return read_counters(pair.b.fabric).at(name) - before.at(name);
  };
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(std::make_unique<Stranger>(pair.listener->address()));
    strangers.back()->say(hello().substr(0, size_t(i)));
  }
  EXPECT_TRUE(pair.until([&] { return refused("connections_refused_timeout") == 20; },
                         std::chrono::seconds(10)));
  for (auto &stranger : strangers) EXPECT_TRUE(stranger->ended());
  EXPECT_EQ(refused("connections_refused_version"), 0u);
}

// As many connections as allowed are in the middle of their request. Those behind them wait in the
// kernel until their turn comes, and cost this process nothing. A silent one makes room long before
// its time is over.
TEST(HostileWireLimits, HalfOpenRequestsAreBounded) {
  if (stack() != "tcp") GTEST_SKIP() << "names a parameter of tcp";
  if (!in_fresh_process({"FI_TCP_MAX_HANDSHAKES=10", "FI_TCP_HANDSHAKE_TIMEOUT_MS=600000"})) return;
  Pair pair;
  const Counts before = read_counters(pair.b.fabric);
  const auto counted = [&](const char *name) {
    return read_counters(pair.b.fabric).at(name) - before.at(name);
  };
  const int descriptors = count_descriptors();
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 35; ++i)
    strangers.push_back(std::make_unique<Stranger>(pair.listener->address()));
  // An honest peer behind all of them.
  Side active;
  active.open(options_info({}).get());
  active.make_endpoint(active.info.get());
  const std::string address = pair.listener->address();
  must(fi_connect(active.ep, address.data(), nullptr, 0));
  EXPECT_TRUE(pair.until([&] { return counted("accepts_held") != 0; }, std::chrono::seconds(10)));
  // Ten sockets, and a few descriptors that serve them all.
  EXPECT_LE(count_descriptors(), descriptors + 35 + 10 + 12);
  // Some close, the others make room, and then it is the turn of the honest peer.
  for (int i = 0; i < 5; ++i) strangers[size_t(i)].reset();
  const Event request = next_request(pair.b, {&pair.b, &active});
  const uint64_t closed = counted("connections_refused_version");
  const uint64_t silent = counted("connections_refused_silent");
  EXPECT_LE(closed, 5u);
  EXPECT_GE(closed + silent, 26u) << "the last nine may still be there";
  EXPECT_LE(closed + silent, 35u);
  EXPECT_EQ(counted("connections_refused_timeout"), 0u);
  must(fi_reject(pair.listener->pep, request.info->handle, nullptr, 0));
  EXPECT_EQ(wait_event(active.eq, {&pair.b, &active}).err, FI_ECONNREFUSED);
}

// The timeout is for the stranger's request. A request that came in time counts, even if the
// listener reads it later.
TEST(HostileWireLimits, ARequestThatCameInTimeCountsEvenIfItIsReadLate) {
  if (stack() != "tcp") GTEST_SKIP() << "names a parameter of tcp";
  if (!in_fresh_process({"FI_TCP_HANDSHAKE_TIMEOUT_MS=50", kNoControl})) return;
  Pair pair;
  const Counts before = read_counters(pair.b.fabric);
  Stranger stranger(pair.listener->address());
  // Its timeout begins when it is accepted. The new descriptor shows that.
  const int descriptors = count_descriptors();
  ASSERT_TRUE(pair.until([&] { return count_descriptors() > descriptors; }));
  stranger.say(hello(3, 0, 5, "hello"));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(60);
  while (std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(next_request(pair.b, {&pair.b}).data, "hello");
  EXPECT_EQ(read_counters(pair.b.fabric).at("connections_refused_timeout"),
            before.at("connections_refused_timeout"));
}

// ---- in a connection ----

// A stranger that made a connection, and the endpoint that serves it.
class HostileFrames : public HostileWire {
 protected:
  void SetUp() override {
    HostileWire::SetUp();
    if (!pair) return;
    stranger = std::make_unique<Stranger>(address());
    stranger->say(hello());
    const Event request = next_request(pair->b, {&pair->a, &pair->b});
    must(fi_endpoint(pair->b.domain, request.info.get(), victim.out(), nullptr));
    fi_cq_attr attr = Options::cq_attr();
    must(fi_cq_open(pair->b.domain, &attr, cq.out(), nullptr));
    must(fi_ep_bind(victim, pair->b.eq.fid(), 0));
    must(fi_ep_bind(victim, cq.fid(), FI_TRANSMIT | FI_RECV));
    must(fi_enable(victim));
    must(fi_accept(victim, nullptr, 0));
    EXPECT_EQ(pair->wait(pair->b.eq).type, uint32_t(FI_CONNECTED));
    EXPECT_EQ(stranger->hear(32, pair->b).substr(0, 4), bytes_of({3, 1, 0, 0}));
    memory = pattern(4096, 1);
    region = pair->b.expose(memory.data() + 1024, 2048, FI_REMOTE_READ | FI_REMOTE_WRITE, 0xc0de);
    original = memory;
    before = read_counters(pair->b.fabric);
  }
  void TearDown() override {
    if (!pair) return;
    EXPECT_EQ(memory, original);
    HostileWire::TearDown();
    victim.reset();
    cq.reset();
  }
  // The connection ends, the application gets FI_SHUTDOWN, and only this counter changes.
  void expect_ended(const Counts &counted) {
    const Event end = pair->wait(pair->b.eq);
    EXPECT_EQ(end.type, uint32_t(FI_SHUTDOWN));
    EXPECT_EQ(end.fid, victim.fid());
    EXPECT_TRUE(pair->until([&] { return stranger->ended(); }, std::chrono::seconds(10)));
    EXPECT_EQ(changes(), counted);
    pair->settle();
    EXPECT_FALSE(poll_eq(pair->b.eq).has_value());
  }
  void expect_rejected() { expect_ended({{"frames_rejected", 1}, {"connections_lost", 1}}); }
  void expect_rma_rejected() {
    expect_ended({{"frames_rejected", 1}, {"rma_rejected", 1}, {"connections_lost", 1}});
  }

  std::unique_ptr<Stranger> stranger;
  Handle<fid_cq> cq;
  Handle<fid_ep> victim;
  std::vector<uint8_t> memory, original;
  fid_mr *region = nullptr;
};

TEST_F(HostileFrames, AGoodFrameIsGood) {
  char in[16] = {};
  must(fi_recv(victim, in, sizeof in, nullptr, 0, in));
  stranger->say(frame(0, 4, 5) + "hello");
  const Done done = pair->wait(cq);
  EXPECT_EQ(done.len, 5u);
  EXPECT_STREQ(in, "hello");
  EXPECT_EQ(stranger->hear(16, pair->b), frame(0, 0, 0, "", 0, 2)) << "the acknowledgement";
  EXPECT_EQ(changes(), Counts{});
}

TEST_F(HostileFrames, AFrameShorterThanItsHeader) {
  std::string bytes = frame(0, 0, 0);
  bytes[8] = 15;
  stranger->say(bytes);
  expect_rejected();
}

TEST_F(HostileFrames, AFrameOfNoLength) {
  std::string bytes = frame(0, 0, 0);
  bytes[8] = 0;
  stranger->say(bytes);
  expect_rejected();
}

TEST_F(HostileFrames, AHeaderShorterThanAHeader) {
  for (const int size : {0, 1, 15}) {
    if (size != 0) {
      HostileFrames::TearDown();
      HostileFrames::SetUp();
    }
    std::string bytes = frame(0, 0, 100);
    bytes[6] = char(size);
    stranger->say(bytes);
    expect_rejected();
  }
}

TEST_F(HostileFrames, AHeaderLongerThanAnyHeader) {
  std::string bytes = frame(0, 0, 1000);
  bytes[6] = char(255);
  stranger->say(bytes + std::string(300, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AHeaderWithoutTheDataThatItsFlagsPromise) {
  stranger->say(frame(0, 1, 8) + std::string(8, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AnEnormousLengthWithoutAReceiveTakesNoMemory) {
  std::string bytes = frame(0, 0, 0);
  bytes.replace(8, 8, little(UINT64_MAX));
  char in[16];
  must(fi_recv(victim, in, sizeof in, nullptr, 0, in));
  stranger->say(bytes + std::string(100000, 'x'));
  // Either it is refused at once, or it is a message that does not fit and never ends; both are
  // fine while nothing is written.
  pair->settle();
  stranger->hang_up();
  const Event end = pair->wait(pair->b.eq);
  EXPECT_EQ(end.type, uint32_t(FI_SHUTDOWN));
  EXPECT_NE(pair->wait(cq).err, 0);
}

TEST_F(HostileFrames, UnknownOperations) {
  for (const int op : {1, 5, 6, 7, 8, 100, 255}) {
    if (op != 1) {
      HostileFrames::TearDown();
      HostileFrames::SetUp();
    }
    stranger->say(frame(op, 0, 0, std::string(16, '\0')));
    expect_rejected();
  }
}

TEST_F(HostileFrames, AWriteOfNoVectors) {
  stranger->say(frame(4, 0, 10, "", 0) + std::string(10, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AWriteOfTooManyVectors) {
  stranger->say(frame(4, 0, 10, vector_of(0, 10, 0xc0de), 255) + std::string(10, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AWriteOfMoreVectorsThanItsHeaderHolds) {
  stranger->say(frame(4, 0, 10, vector_of(0, 10, 0xc0de), 4) + std::string(200, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AReadOfNoVectors) {
  stranger->say(frame(2, 0, 0, "", 0));
  expect_rejected();
}

TEST_F(HostileFrames, AReadWithAPayload) {
  stranger->say(frame(2, 0, 10, vector_of(0, 10, 0xc0de), 1) + std::string(10, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AWriteWhosePayloadDiffersFromItsVectors) {
  stranger->say(frame(4, 0, 20, vector_of(0, 10, 0xc0de), 1) + std::string(20, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AWriteWhoseVectorsOverflow) {
  stranger->say(frame(4, 0, 10, vector_of(0, UINT64_MAX, 0xc0de) + vector_of(0, 11, 0xc0de), 2) +
                std::string(10, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AWriteToAnUnknownKey) {
  stranger->say(frame(4, 0, 10, vector_of(0, 10, 1), 1) + std::string(10, 'x'));
  expect_rma_rejected();
}

TEST_F(HostileFrames, AWriteBehindTheRegion) {
  stranger->say(frame(4, 0, 10, vector_of(2040, 10, 0xc0de), 1) + std::string(10, 'x'));
  expect_rma_rejected();
}

TEST_F(HostileFrames, AWriteBeforeTheRegion) {
  stranger->say(frame(4, 0, 10, vector_of(uint64_t(-5), 10, 0xc0de), 1) + std::string(10, 'x'));
  expect_rma_rejected();
}

TEST_F(HostileFrames, AReadOfAnUnknownKey) {
  stranger->say(frame(2, 0, 0, vector_of(0, 10, 1), 1));
  expect_rma_rejected();
}

TEST_F(HostileFrames, AReadOfAllTheMemoryThereIs) {
  stranger->say(frame(2, 0, 0, vector_of(0, UINT64_MAX, 0xc0de), 1));
  const Event end = pair->wait(pair->b.eq);
  EXPECT_EQ(end.type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(changes().at("frames_rejected"), 1u);
}

TEST_F(HostileFrames, AnAnswerToNothing) {
  stranger->say(frame(3, 0, 100) + std::string(100, 'x'));
  expect_rejected();
}

TEST_F(HostileFrames, AnAcknowledgementOfNothing) {
  stranger->say(frame(0, 0, 0, "", 0, 2));
  expect_rejected();
}

TEST_F(HostileFrames, AnAnswerOfAnotherLength) {
  std::vector<uint8_t> in(100, 0xee);
  must(fi_read(victim, in.data(), in.size(), nullptr, 0, 0, 1, &in));
  EXPECT_EQ(stranger->hear(40, pair->b), frame(2, 0, 0, vector_of(0, 100, 1), 1));
  stranger->say(frame(3, 0, 5000) + std::string(5000, 'x'));
  expect_rejected();
  const Done done = pair->wait(cq);
  EXPECT_EQ(done.context, &in);
  EXPECT_NE(done.err, 0);
  EXPECT_EQ(in, std::vector<uint8_t>(100, 0xee));
}

TEST_F(HostileFrames, TheEndInTheMiddleOfAHeader) {
  stranger->say(frame(0, 0, 100).substr(0, 9));
  pair->settle();
  stranger->hang_up();
  EXPECT_EQ(pair->wait(pair->b.eq).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(changes().at("connections_lost"), 1u);
}

TEST_F(HostileFrames, TheEndInTheMiddleOfAPayload) {
  std::vector<uint8_t> in(100000, 0xee);
  must(fi_recv(victim, in.data(), in.size(), nullptr, 0, &in));
  stranger->say(frame(0, 0, in.size()) + std::string(50000, 'x'));
  pair->settle();
  stranger->hang_up();
  EXPECT_EQ(pair->wait(pair->b.eq).type, uint32_t(FI_SHUTDOWN));
  const Done done = pair->wait(cq);
  EXPECT_EQ(done.context, &in);
  EXPECT_NE(done.err, 0) << "half a message is no message";
}

TEST_F(HostileFrames, ReadsWhoseAnswersAreNotRead) {
  // Each request makes us owe 2 KiB. What we owe is bounded, whatever the peer asks for.
  const std::string request = frame(2, 0, 0, vector_of(0, 2048, 0xc0de), 1);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += request;
  fcntl(stranger->fd(), F_SETFL, O_NONBLOCK);
  size_t said = 0;
  bool ended = false;
  ASSERT_TRUE(pair->until(
      [&] {
        for (;;) {
          const size_t at = said % many.size();
          const ssize_t n =
              ::send(stranger->fd(), many.data() + at, many.size() - at, MSG_NOSIGNAL);
          if (n <= 0) {
            ended = n < 0 && errno != EAGAIN;
            break;
          }
          said += size_t(n);
        }
        return ended || said > (size_t(64) << 20);
      },
      std::chrono::seconds(20)));
  EXPECT_TRUE(ended) << "we took " << said / request.size() << " requests";
  EXPECT_EQ(pair->wait(pair->b.eq).type, uint32_t(FI_SHUTDOWN));
}

TEST_F(HostileFrames, TimeGrowsWithTheNumberOfAnswers) {
  // As many answers as we may owe, more than sockets hold. The cost of an answer must not grow with
  // their number.
  constexpr size_t kSize = 2048;
  const std::string request = frame(2, 0, 0, vector_of(0, kSize, 0xc0de), 1);
  const auto time_for = [&](size_t count) {
    std::string many;
    for (size_t i = 0; i < count; ++i) many += request;
    const auto begin = std::chrono::steady_clock::now();
    size_t said = 0, heard = 0;
    EXPECT_TRUE(pair->until(
        [&] {
          if (said < many.size()) {
            const ssize_t n = ::send(stranger->fd(), many.data() + said, many.size() - said,
                                     MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n > 0) said += size_t(n);
            return false;  // no answer is read before all requests are sent
          }
          static char scrap[1 << 20];
          ssize_t n;
          while ((n = ::recv(stranger->fd(), scrap, sizeof scrap, MSG_DONTWAIT)) > 0)
            heard += size_t(n);
          return heard == count * (16 + kSize);
        },
        std::chrono::seconds(60)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  constexpr size_t kFew = 4000, kMany = 64000;
  double few = 1e9, many = 1e9;
  for (int i = 0; i < 5; ++i) {
    few = std::min(few, time_for(kFew));
    many = std::min(many, time_for(kMany));
    if (many < 2.5 * (kMany / kFew) * few) return;
  }
  ADD_FAILURE() << kFew << " take " << few << " s, " << kMany << " " << many << " s";
}

TEST_F(HostileFrames, MessagesWithoutAReceiveFillNoMemory) {
  // There is no receive: the sender is held back by TCP, the memory here does not grow.
  const std::string message = frame(0, 0, 1000) + std::string(1000, 'x');
  fcntl(stranger->fd(), F_SETFL, O_NONBLOCK);
  size_t said = 0;
  int blocked = 0;
  EXPECT_TRUE(pair->until(
      [&] {
        const size_t at = said % message.size();
        const ssize_t n =
            ::send(stranger->fd(), message.data() + at, message.size() - at, MSG_NOSIGNAL);
        if (n > 0) {
          said += size_t(n);
          blocked = 0;
        } else {
          ++blocked;
        }
        return blocked > 1000;
      },
      std::chrono::seconds(20)));
  EXPECT_LT(said, size_t(64) << 20);
  EXPECT_EQ(changes(), Counts{});
}

}  // namespace
}  // namespace weft::conformance
