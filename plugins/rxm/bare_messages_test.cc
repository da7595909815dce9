// SPDX-License-Identifier: BSD-2-Clause
// Messages without a header (docs/rxm-extensions.md, level 3) over the public API: what arrives is
// what was sent, and the counter of the fabric tells how many there were.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "plugins/rxm/test_peer.h"
#include "plugins/rxm/wire/bare.h"
#include "tests/conformance/counters.h"

namespace weft::conformance {
namespace {

// Over iWARP a message has no remote data.
bool are_possible() {
  const char *const transport = std::getenv("WEFT_TEST_TRANSPORT");
  return transport == nullptr || std::string(transport) != "iwarp";
}

uint64_t bare_sent_by(const Peer &peer) {
  return read_counters(peer.fabric).at("messages_bare");
}

struct Message {
  bool tagged = false, has_data = false, inject = false;
  uint64_t tag = 0, data = 0;
  Bytes bytes;
};

// Upper parts of tags: more than a connection remembers, and the last two are too large for that.
const uint64_t kUppers[] = {0, 1, 0x12345, 0xfffffffe, 5, 6, 0xffffffff, (UINT64_C(1) << 35) - 1};

std::vector<Message> some_messages(unsigned seed, size_t count, size_t inject_size) {
  static constexpr size_t kSizes[] = {0, 1, 64, 4096, 16384};
  std::mt19937 random(seed);
  std::vector<Message> messages(count);
  for (size_t i = 0; i < count; ++i) {
    Message &m = messages[i];
    m.bytes = content(kSizes[random() % std::size(kSizes)], unsigned(i));
    m.tagged = random() % 3 != 0;
    m.has_data = random() % 4 == 0;
    m.inject = random() % 2 == 0 && m.bytes.size() <= inject_size;
    const size_t in_use = i / 40 % 2 == 0 ? 3 : std::size(kUppers);
    if (m.tagged) m.tag = kUppers[random() % in_use] << 29 | i;
    if (m.has_data) m.data = 1000 + i;
  }
  return messages;
}

// How many of them go without a header.
uint64_t bare_among(const std::vector<Message> &messages) {
  if (!are_possible()) return 0;
  rxm::BareTags known;
  uint64_t bare = 0;
  for (const Message &m : messages) {
    if (!m.has_data && (!m.tagged || known.data_of(m.tag)))
      ++bare;
    else if (m.tagged)
      known.learn(m.tag);
  }
  return bare;
}

ssize_t try_send(Peer &from, fi_addr_t to, const Message &m, void *context) {
  const void *at = m.bytes.data();
  const size_t n = m.bytes.size();
  if (m.tagged && m.inject)
    return m.has_data ? fi_tinjectdata(from.ep, at, n, m.data, to, m.tag)
                      : fi_tinject(from.ep, at, n, to, m.tag);
  if (m.tagged)
    return m.has_data ? fi_tsenddata(from.ep, at, n, nullptr, m.data, to, m.tag, context)
                      : fi_tsend(from.ep, at, n, nullptr, to, m.tag, context);
  if (m.inject)
    return m.has_data ? fi_injectdata(from.ep, at, n, m.data, to) : fi_inject(from.ep, at, n, to);
  return m.has_data ? fi_senddata(from.ep, at, n, nullptr, m.data, to, context)
                    : fi_send(from.ep, at, n, nullptr, to, context);
}

void send_all(Peer &a, Peer &b, fi_addr_t to, const std::vector<Message> &messages) {
  for (const Message &m : messages) {
    ssize_t rc = -FI_EAGAIN;
    ASSERT_TRUE(until({&a, &b}, [&] {
      rc = try_send(a, to, m, const_cast<Message *>(&m));
      return rc != -FI_EAGAIN;
    }));
    must(rc);
  }
}

void expect_ended(Peer &a, Peer &b, const std::vector<Message> &messages) {
  for (const Message &m : messages) {
    if (!m.inject) {
      EXPECT_EQ(wait(a, &m, {&a, &b}).err, 0);
    }
  }
}

void expect_same(const Entry &got, const Message &m) {
  EXPECT_EQ(got.err, 0);
  EXPECT_EQ(got.len, m.bytes.size());
  EXPECT_EQ(got.flags, FI_RECV | (m.tagged ? FI_TAGGED : FI_MSG) |
                           (m.has_data ? FI_REMOTE_CQ_DATA : UINT64_C(0)));
  if (m.tagged) {
    EXPECT_EQ(got.tag, m.tag);
  }
  if (m.has_data) {
    EXPECT_EQ(got.data, m.data);
  }
}

TEST(RxmBare, MessagesArriveInOrderWithTheirTagsAndData) {
  for (const bool expected : {true, false}) {
    SCOPED_TRACE(expected ? "expected" : "unexpected");
    Peer a, b;
    const fi_addr_t to = a.insert(b);
    b.insert(a);
    const auto messages = some_messages(expected, 160, a.info->tx_attr->inject_size);
    const uint64_t before = bare_sent_by(a);
    // Each receive takes the next message of its kind, whatever its tag.
    std::vector<Bytes> in(messages.size(), Bytes(16384));
    const auto post = [&] {
      for (size_t i = 0; i < messages.size(); ++i) {
        uint8_t *const at = in[i].data();
        must(messages[i].tagged
                 ? fi_trecv(b.ep, at, in[i].size(), nullptr, FI_ADDR_UNSPEC, 0, ~UINT64_C(0),
                            mark(i))
                 : fi_recv(b.ep, at, in[i].size(), nullptr, FI_ADDR_UNSPEC, mark(i)));
      }
    };
    if (expected) post();
    send_all(a, b, to, messages);
    for (int i = 0; i < 50; ++i) a.progress(), b.progress();
    if (!expected) post();
    for (size_t i = 0; i < messages.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(wait(b, mark(i), {&a, &b}), messages[i]);
      in[i].resize(messages[i].bytes.size());
      EXPECT_EQ(in[i], messages[i].bytes);
    }
    expect_ended(a, b, messages);
    EXPECT_EQ(bare_sent_by(a) - before, bare_among(messages));
    EXPECT_EQ(bare_sent_by(b), 0u) << "it has sent nothing";
  }
}

// The receive names the tag.
TEST(RxmBare, AMessageFindsTheReceiveOfItsTag) {
  Peer a, b;
  const fi_addr_t to = a.insert(b);
  for (const size_t round : {0, 1, 2}) {
    Bytes in(std::size(kUppers));
    for (size_t i = 0; i < in.size(); ++i)
      must(fi_trecv(b.ep, &in[i], 1, nullptr, FI_ADDR_UNSPEC, kUppers[i] << 29 | 7, 0, mark(i)));
    for (size_t i = in.size(); i-- > 0;) {
      const auto byte = uint8_t(16 * round + i);
      must(fi_tinject(a.ep, &byte, 1, to, kUppers[i] << 29 | 7));
      EXPECT_EQ(wait(b, mark(i), {&a, &b}).tag, kUppers[i] << 29 | 7);
      EXPECT_EQ(in[i], byte);
    }
  }
}

TEST(RxmBare, MessagesShareAMultiReceiveBuffer) {
  PeerOptions options;
  options.caps |= FI_MULTI_RECV;
  Peer a(options), b(options);
  const fi_addr_t to = a.insert(b);
  auto messages = some_messages(3, 60, a.info->tx_attr->inject_size);
  for (Message &m : messages) m.tagged = false;
  Bytes in(60 * 16384);
  iovec iov{in.data(), in.size()};
  const fi_msg msg{.msg_iov = &iov,
                   .desc = nullptr,
                   .iov_count = 1,
                   .addr = FI_ADDR_UNSPEC,
                   .context = mark(0),
                   .data = 0};
  must(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV));
  send_all(a, b, to, messages);
  for (const Message &m : messages) {
    Entry got = wait(b, mark(0), {&a, &b});
    ASSERT_GE(got.buf, in.data());
    ASSERT_LE(static_cast<uint8_t *>(got.buf) + got.len, in.data() + in.size());
    EXPECT_TRUE(std::equal(m.bytes.begin(), m.bytes.end(), static_cast<uint8_t *>(got.buf)));
    got.flags &= ~uint64_t(FI_MULTI_RECV);
    expect_same(got, m);
  }
  expect_ended(a, b, messages);
  EXPECT_EQ(bare_sent_by(a) != 0, are_possible());
}

}  // namespace
}  // namespace weft::conformance
