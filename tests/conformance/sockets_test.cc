// SPDX-License-Identifier: BSD-2-Clause
// Socket endpoints (fi_endpoint.3, SOCKET ENDPOINTS): FI_EP_SOCK_STREAM of tcp and FI_EP_SOCK_DGRAM
// of udp. Their numbers are those of API 1.x, whose programs ask for them.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_tagged.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

constexpr int kStream = 4, kDgram = 5;
constexpr size_t kMany = 8 << 20;

int type_of(const fi_info &info) {
  int type;
  std::memcpy(&type, &info.ep_attr->type, sizeof type);
  return type;
}

// Hints for `provider`, by the number of a type that the header does not name.
Info hints_for(const char *provider, int type) {
  Info hints(fi_allocinfo());
  hints->fabric_attr->prov_name = strdup(provider);
  std::memcpy(&hints->ep_attr->type, &type, sizeof type);
  return hints;
}
Info find(const char *provider, int type, uint64_t flags = 0, const char *node = "127.0.0.1") {
  const Info hints = hints_for(provider, type);
  Info found;
  const int rc = try_info(found, node, nullptr, flags, hints.get());
  if (rc != -FI_ENODATA) must(rc);
  return found;
}

// A fabric, a domain and an event queue.
struct Place {
  explicit Place(const Info &found) : info(fi_dupinfo(found.get())) {
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    fi_eq_attr attr{};
    must(fi_eq_open(fabric, &attr, eq.out(), nullptr));
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
  }
  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
  Handle<fid_domain> domain;
};

// One that has a connection, or will have one.
struct Stream : Place {
  Stream() : Place(find("tcp", kStream)) {}
  void make(fi_info *from) {
    must(fi_endpoint(domain, from, ep.out(), this));
    must(fi_ep_bind(ep, eq.fid(), 0));
    must(fi_enable(ep));
  }
  int fd() const {
    int fd = -1;
    must(fi_control(ep.fid(), FI_GETWAIT, &fd));
    return fd;
  }
  Event event() {
    std::optional<Event> got;
    const Deadline deadline;
    while (!(got = poll_eq(eq)) && !deadline.passed()) {
    }
    if (!got) throw std::runtime_error("no event came");
    return std::move(*got);
  }
  void await(short what) const {
    pollfd p{fd(), what, 0};
    ASSERT_EQ(::poll(&p, 1, Deadline().left_ms()), 1);
  }
  ssize_t recv(void *buffer, size_t size) const {
    await(POLLIN);
    return fi_recv(ep, buffer, size, nullptr, FI_ADDR_UNSPEC, nullptr);
  }
  std::string text(size_t size) const {
    std::string text(size, '\0');
    const ssize_t n = recv(text.data(), size);
    must(n);
    text.resize(size_t(n));
    return text;
  }
  ssize_t send(const std::string &text) const {
    return fi_send(ep, text.data(), text.size(), nullptr, FI_ADDR_UNSPEC, nullptr);
  }
  Handle<fid_ep> ep;
};

struct Listening : Stream {
  Listening() {
    const Info local = find("tcp", kStream, FI_SOURCE);
    must(fi_passive_ep(fabric, local.get(), pep.out(), nullptr));
    must(fi_pep_bind(pep, eq.fid(), 0));
    must(fi_listen(pep));
  }
  std::string address() {
    return address_of([&](void *to, size_t *size) { return fi_getname(pep.fid(), to, size); });
  }
  Info request() {
    Event event = this->event();
    EXPECT_EQ(event.type, uint32_t(FI_CONNREQ));
    return std::move(event.info);
  }
  void accept() {
    const Info asked = request();
    EXPECT_EQ(type_of(*asked), kStream);
    make(asked.get());
    must(fi_accept(ep, nullptr, 0));
    EXPECT_EQ(event().type, uint32_t(FI_CONNECTED));
  }
  Handle<fid_pep> pep;
};

// Two connected byte streams.
struct Streams {
  Streams() {
    a.make(a.info.get());
    must(fi_connect(a.ep, b.address().data(), nullptr, 0));
    b.accept();
    EXPECT_EQ(a.event().type, uint32_t(FI_CONNECTED));
  }
  Listening b;
  Stream a;
};

TEST(SockStream, GetinfoReportsThemOnlyIfAskedFor) {
  const Info found = find("tcp", kStream);
  ASSERT_TRUE(found);
  for (const fi_info *info = found.get(); info != nullptr; info = info->next) {
    EXPECT_EQ(type_of(*info), kStream);
    EXPECT_TRUE(info->caps & FI_MSG);
    EXPECT_FALSE(info->caps & (FI_TAGGED | FI_RMA));
    EXPECT_NE(std::string(fi_tostr(info, FI_TYPE_INFO)).find("FI_EP_SOCK_STREAM"),
              std::string::npos);
  }
  const Info all = get_info(nullptr, nullptr, 0, nullptr);
  for (const fi_info *info = all.get(); info != nullptr; info = info->next)
    EXPECT_LE(type_of(*info), int(FI_EP_RDM));
  EXPECT_FALSE(find("udp", kStream));
  EXPECT_FALSE(find("tcp;ofi_rxm", kStream));
  EXPECT_FALSE(find("tcp", kDgram));
  EXPECT_FALSE(find("tcp", 6));
}

TEST(SockStream, BytesHaveNoBoundaries) {
  Streams s;
  EXPECT_EQ(s.a.send("abc"), 3);
  EXPECT_EQ(s.a.send("defg"), 4);
  std::string got;
  while (got.size() < 2) got += s.b.text(2 - got.size());
  EXPECT_EQ(got, "ab") << "a part of a send";
  while (got.size() < 7) got += s.b.text(100);
  EXPECT_EQ(got, "abcdefg") << "several sends at once";
  EXPECT_EQ(s.b.send("back"), 4);
  EXPECT_EQ(s.a.text(4), "back");
}

TEST(SockStream, EmptyAndFullQueuesSaySo) {
  Streams s;
  char byte;
  EXPECT_EQ(fi_recv(s.b.ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EAGAIN);
  const std::vector<uint8_t> out = pattern(kMany, 1);
  std::vector<uint8_t> in;
  size_t sent = 0;
  bool was_full = false, was_partial = false;
  std::vector<uint8_t> room(100'000);
  const Deadline deadline;
  while (in.size() < out.size() && !deadline.passed()) {
    // Fills the connection, then reads a part.
    while (sent < out.size()) {
      const ssize_t n =
          fi_send(s.a.ep, out.data() + sent, out.size() - sent, nullptr, FI_ADDR_UNSPEC, nullptr);
      if (n == -FI_EAGAIN) {
        was_full = true;
        break;
      }
      ASSERT_GT(n, 0);
      was_partial |= size_t(n) < out.size() - sent;
      sent += size_t(n);
    }
    const ssize_t n = s.b.recv(room.data(), room.size());
    ASSERT_GT(n, 0);
    in.insert(in.end(), room.begin(), room.begin() + n);
  }
  EXPECT_TRUE(was_full);
  EXPECT_TRUE(was_partial);
  EXPECT_EQ(in, out);
  s.a.await(POLLOUT);
}

TEST(SockStream, VectorsAndFlags) {
  Streams s;
  char one[] = "one", two[] = "two";
  const iovec out[] = {{one, 3}, {two, 3}};
  EXPECT_EQ(fi_sendv(s.a.ep, out, nullptr, 2, FI_ADDR_UNSPEC, nullptr), 6);
  char in[6] = {};
  const iovec parts[] = {{in, 2}, {in + 2, 4}};
  fi_msg msg{};
  msg.msg_iov = parts;
  msg.iov_count = 2;
  s.b.await(POLLIN);
  EXPECT_EQ(fi_recvmsg(s.b.ep, &msg, FI_PEEK), 6);
  EXPECT_EQ(fi_recvv(s.b.ep, parts, nullptr, 2, FI_ADDR_UNSPEC, nullptr), 6) << "still there";
  EXPECT_EQ(std::string(in, 6), "onetwo");
  msg.msg_iov = out;
  EXPECT_EQ(fi_sendmsg(s.a.ep, &msg, 0), 6);
  EXPECT_EQ(fi_inject(s.a.ep, "!", 1, FI_ADDR_UNSPEC), 1);
  std::string got;
  while (got.size() < 7) got += s.b.text(7);
  EXPECT_EQ(got, "onetwo!");
  EXPECT_EQ(fi_sendmsg(s.a.ep, &msg, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
  EXPECT_EQ(fi_recvmsg(s.a.ep, &msg, FI_CLAIM), -FI_EBADFLAGS);
  EXPECT_EQ(fi_sendv(s.a.ep, out, nullptr, 1000, FI_ADDR_UNSPEC, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_send(s.a.ep, nullptr, 1, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_tsend(s.a.ep, one, 1, nullptr, FI_ADDR_UNSPEC, 1, nullptr), -FI_ENOSYS);
}

TEST(SockStream, ShutdownEndsOneDirection) {
  Streams s;
  EXPECT_EQ(s.a.send("last words"), 10);
  must(fi_shutdown(s.a.ep, 0));
  EXPECT_EQ(s.a.event().type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(s.b.event().type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(s.a.send("more"), -FI_ESHUTDOWN);
  EXPECT_EQ(s.b.text(100), "last words") << "what was sent before is still there";
  char byte;
  EXPECT_EQ(s.b.recv(&byte, 1), 0) << "the end";
  EXPECT_EQ(s.b.send("answer"), 6);
  EXPECT_EQ(s.a.text(100), "answer");
  EXPECT_FALSE(poll_eq(s.b.eq)) << "once only";
  EXPECT_NE(fi_shutdown(s.a.ep, 0), 0);
}

TEST(SockStream, APeerThatIsGoneIsAnError) {
  Streams s;
  s.b.ep.reset();
  EXPECT_EQ(s.a.event().type, uint32_t(FI_SHUTDOWN));
  const Deadline deadline;
  ssize_t rc = 0;
  while ((rc = s.a.send("hello")) > 0 && !deadline.passed()) {
  }
  EXPECT_TRUE(rc == -FI_ESHUTDOWN || rc == -FI_ECONNRESET) << error_text(rc);
}

TEST(SockStream, ARefusedConnectionIsAnEvent) {
  Stream a;
  std::string nobody;
  {
    Listening b;
    nobody = b.address();
  }
  a.make(a.info.get());
  must(fi_connect(a.ep, nobody.data(), nullptr, 0));
  EXPECT_EQ(a.event().err, FI_ECONNREFUSED);
  EXPECT_EQ(a.send("x"), -FI_ESHUTDOWN);
  int fd;
  EXPECT_EQ(fi_control(a.ep.fid(), FI_GETWAIT, &fd), -FI_ENOTCONN);
}

TEST(SockStream, ARejectedRequestIsAShutdown) {
  Listening b;
  Stream a;
  a.make(a.info.get());
  must(fi_connect(a.ep, b.address().data(), nullptr, 0));
  EXPECT_EQ(a.event().type, uint32_t(FI_CONNECTED));
  const Info asked = b.request();
  must(fi_reject(b.pep, asked->handle, nullptr, 0));
  EXPECT_EQ(a.event().type, uint32_t(FI_SHUTDOWN));
}

// Nothing is on the wire but the bytes.
TEST(SockStream, AnyTcpProgramIsAPeer) {
  Listening b;
  const std::string address = b.address();
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(
      ::connect(fd, reinterpret_cast<const sockaddr *>(address.data()), socklen_t(address.size())),
      0);
  b.accept();
  EXPECT_EQ(b.send("hello"), 5);
  char in[5];
  EXPECT_EQ(::recv(fd, in, sizeof in, MSG_WAITALL), 5);
  EXPECT_EQ(std::string(in, 5), "hello");
  EXPECT_EQ(::send(fd, "there", 5, 0), 5);
  EXPECT_EQ(b.text(5), "there");
  EXPECT_EQ(address_of([&](void *to, size_t *size) { return fi_getpeer(b.ep, to, size); }).size(),
            sizeof(sockaddr_in));
  ::close(fd);
  EXPECT_EQ(b.event().type, uint32_t(FI_SHUTDOWN));
}

TEST(SockStream, WhatItDoesNotHave) {
  Stream a;
  must(fi_endpoint(a.domain, a.info.get(), a.ep.out(), nullptr));
  EXPECT_EQ(fi_enable(a.ep), -FI_ENOEQ);
  fi_cq_attr attr{};
  Handle<fid_cq> cq;
  must(fi_cq_open(a.domain, &attr, cq.out(), nullptr));
  EXPECT_EQ(fi_ep_bind(a.ep, cq.fid(), FI_TRANSMIT | FI_RECV), -FI_EINVAL) << "no completions";
  EXPECT_EQ(a.send("x"), -FI_ENOTCONN);
  size_t room = 7, size = sizeof room;
  must(fi_getopt(a.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &room, &size));
  EXPECT_EQ(room, 0u);
}

// What one kind of endpoint has is not for the other.
TEST(SockStream, HandlesAreNotMixed) {
  Listening b;
  Stream a;
  a.make(a.info.get());
  must(fi_connect(a.ep, b.address().data(), nullptr, 0));
  const Info asked = b.request();
  const int msg = FI_EP_MSG;
  std::memcpy(&asked->ep_attr->type, &msg, sizeof msg);
  Handle<fid_ep> ep;
  EXPECT_EQ(fi_endpoint(b.domain, asked.get(), ep.out(), nullptr), -FI_EINVAL);
  must(fi_reject(b.pep, asked->handle, nullptr, 0));

  const Info hints = hints_for("tcp", FI_EP_MSG);
  const Info local = get_info("127.0.0.1", nullptr, FI_SOURCE, hints.get());
  Handle<fid_pep> pep;
  must(fi_passive_ep(a.fabric, local.get(), pep.out(), nullptr));
  const Info mine(fi_dupinfo(a.info.get()));
  mine->handle = pep.fid();
  EXPECT_EQ(fi_endpoint(a.domain, mine.get(), ep.out(), nullptr), -FI_EINVAL);
}

// ---- datagrams ----

struct Datagrams : Place {
  explicit Datagrams(const char *provider = "udp") : Place(find(provider, kDgram, FI_SOURCE)) {
    fi_av_attr attr{};
    must(fi_av_open(domain, &attr, av.out(), nullptr));
    must(fi_endpoint(domain, info.get(), ep.out(), nullptr));
    must(fi_ep_bind(ep, av.fid(), 0));
    must(fi_enable(ep));
  }
  std::string name() {
    return address_of([&](void *to, size_t *size) { return fi_getname(ep.fid(), to, size); });
  }
  fi_addr_t insert(const std::string &address) {
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insert(av, address.data(), 1, &to, 0, nullptr), 1);
    return to;
  }
  ssize_t recv(void *buffer, size_t size) {
    int fd = -1;
    must(fi_control(ep.fid(), FI_GETWAIT, &fd));
    pollfd p{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&p, 1, Deadline().left_ms()), 1);
    return fi_recv(ep, buffer, size, nullptr, FI_ADDR_UNSPEC, nullptr);
  }
  Handle<fid_av> av;
  Handle<fid_ep> ep;
};

TEST(SockDgram, GetinfoReportsThemOnlyIfAskedFor) {
  const Info found = find("udp", kDgram);
  ASSERT_TRUE(found);
  EXPECT_EQ(type_of(*found), kDgram);
  EXPECT_NE(std::string(fi_tostr(found.get(), FI_TYPE_INFO)).find("FI_EP_SOCK_DGRAM"),
            std::string::npos);
  EXPECT_FALSE(find("udp;ofi_rxd", kDgram));
}

// The name of a provider that programs still ask for.
TEST(SockStream, TheAliasSocketsHasThem) {
  const Info found = find("sockets", kStream);
  ASSERT_TRUE(found);
  EXPECT_STREQ(found->fabric_attr->prov_name, "sockets");
}

TEST(SockDgram, EachCallIsADatagram) {
  Datagrams a, b;
  const fi_addr_t to = a.insert(b.name());
  char in[100];
  EXPECT_EQ(fi_recv(b.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EAGAIN);
  EXPECT_EQ(fi_send(a.ep, "one", 3, nullptr, to, nullptr), 3);
  EXPECT_EQ(fi_send(a.ep, "second", 6, nullptr, to, nullptr), 6);
  EXPECT_EQ(fi_send(a.ep, nullptr, 0, nullptr, to, nullptr), 0);
  EXPECT_EQ(fi_inject(a.ep, "4th", 3, to), 3);
  EXPECT_EQ(b.recv(in, sizeof in), 3);
  EXPECT_EQ(b.recv(in, 2), 2) << "what does not fit is lost";
  EXPECT_EQ(b.recv(in, sizeof in), 0);
  EXPECT_EQ(b.recv(in, sizeof in), 3);
  EXPECT_EQ(std::string(in, 3), "4th");
}

TEST(SockDgram, AnyUdpProgramIsAPeer) {
  Datagrams a;
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof own;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr *>(&own), size), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr *>(&own), &size), 0);
  const fi_addr_t to = a.insert(std::string(reinterpret_cast<char *>(&own), sizeof own));
  EXPECT_EQ(fi_send(a.ep, "hello", 5, nullptr, to, nullptr), 5);
  char in[10];
  EXPECT_EQ(::recv(fd, in, sizeof in, 0), 5);
  const std::string name = a.name();
  EXPECT_EQ(::sendto(fd, "hi", 2, 0, reinterpret_cast<const sockaddr *>(name.data()),
                     socklen_t(name.size())),
            2);
  EXPECT_EQ(a.recv(in, sizeof in), 2);
  ::close(fd);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(fi_send(a.ep, "hello", 5, nullptr, to, nullptr), 5) << "nobody hears it";
}

TEST(SockDgram, WrongCallsGetErrors) {
  Datagrams a;
  const fi_addr_t to = a.insert(a.name());
  EXPECT_EQ(fi_send(a.ep, "x", 1, nullptr, to + 1, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_send(a.ep, "x", 1, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EINVAL);
  const std::vector<uint8_t> large(70'000);
  EXPECT_EQ(fi_send(a.ep, large.data(), large.size(), nullptr, to, nullptr), -FI_EMSGSIZE);
  Handle<fid_ep> bare;
  must(fi_endpoint(a.domain, a.info.get(), bare.out(), nullptr));
  EXPECT_EQ(fi_send(bare, "x", 1, nullptr, to, nullptr), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_enable(bare), -FI_ENOAV);
  fi_cq_attr attr{};
  Handle<fid_cq> cq;
  must(fi_cq_open(a.domain, &attr, cq.out(), nullptr));
  EXPECT_EQ(fi_ep_bind(bare, cq.fid(), FI_RECV), -FI_EINVAL);
}

}  // namespace
}  // namespace weft::conformance
