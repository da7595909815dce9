// SPDX-License-Identifier: BSD-2-Clause
// A receiver with a domain, a completion queue, a counter, an address vector of four peers and the
// smallest protocol. For the tests of weft/sdk/transfers/receiver.h only.
//
// Example:
//    class ReceiverTest : public ReceiverFixture {};
//    TEST_F(ReceiverTest, AMessageIsReceived) {
//      ASSERT_EQ(recv(buf, 64, 1), 0);
//      arrive(untagged(), "hello");
//      EXPECT_EQ(entry().len, 5u);
//    }
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <weft/sdk/addresses/av.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/transfers/receiver.h"

namespace weft::sdk {

constexpr uint64_t kTagged = FI_RECV | FI_TAGGED, kMsg = FI_RECV | FI_MSG;

// An unexpected message with its bytes.
struct Saved : Unexpected {
  std::string bytes;
};

// One entry of the queue, an error or not.
struct Entry {
  size_t context = 0;
  uint64_t flags = 0;
  size_t len = 0;
  const void *buf = nullptr;
  uint64_t data = 0, tag = 0;
  fi_addr_t src = FI_ADDR_NOTAVAIL;
  int err = 0;
  size_t olen = 0;
  std::string err_data;
};

// A receiver with the smallest protocol: messages arrive whole. Delivered messages complete at
// once, or, with `hold`, by finish().
class ReceiverFixture : public ::testing::Test, public ReceiverSink {
 protected:
  ReceiverFixture() { make({.source = true}); }
  ~ReceiverFixture() override {
    receiver.reset();
    EXPECT_EQ(saved_, 0u) << "messages neither delivered nor discarded";
    if (av_ != nullptr) fi_close(av_->base());
    if (cntr_ != nullptr) fi_close(cntr_->base());
    if (cq_ != nullptr) fi_close(cq_->base());
  }

  void make(const ReceiverSettings &settings) {
    receiver = std::make_unique<Receiver>(*this, settings);
    if (cq_ == nullptr) {
      fi_cq_attr cq_attr{};
      cq_attr.format = FI_CQ_FORMAT_TAGGED;
      cq_ = *Cq::open(domain.context, &cq_attr, nullptr);
      cntr_ = *Cntr::open(domain.context, nullptr, nullptr);
      fi_av_attr av_attr{};
      av_attr.type = FI_AV_TABLE;
      av_ = *Av::open(domain.context, FI_SOCKADDR_IN, &av_attr, nullptr);
      sockaddr_in peers[4] = {};
      for (int i = 0; i < 4; ++i) {
        peers[i].sin_family = AF_INET;
        peers[i].sin_port = htons(uint16_t(1000 + i));
        peers[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      }
      fi_addr_t names[4];
      EXPECT_EQ(av_->insert(peers, 4, names, 0, nullptr), 4);
      EXPECT_THAT(names, ::testing::ElementsAre(0, 1, 2, 3));
    }
    receiver->cq = cq_;
    receiver->cntr = cntr_;
    receiver->av = av_;
  }
  // Replaces the queue by one of `size` entries.
  void narrow(size_t size) {
    fi_close(cq_->base());
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = size;
    receiver->cq = cq_ = *Cq::open(domain.context, &attr, nullptr);
  }

  // ---- the application ----
  ssize_t post(RecvRequest request) {
    Guard guard(domain.engine.lock());
    return receiver->post(request);
  }
  ssize_t recv(void *buf, size_t len, size_t context, uint64_t flags = 0,
               fi_addr_t src = FI_ADDR_UNSPEC) {
    const iovec iov{buf, len};
    return post({.iov = &iov, .count = 1, .src = src, .flags = flags, .context = ctx(context)});
  }
  ssize_t trecv(void *buf, size_t len, uint64_t tag, size_t context, uint64_t ignore = 0,
                uint64_t flags = 0, fi_addr_t src = FI_ADDR_UNSPEC) {
    const iovec iov{buf, len};
    return post({.tagged = true,
                 .iov = &iov,
                 .count = 1,
                 .src = src,
                 .tag = tag,
                 .ignore = ignore,
                 .flags = flags,
                 .context = ctx(context)});
  }
  ssize_t look(uint64_t tag, size_t context, uint64_t flags, uint64_t ignore = 0,
               fi_addr_t src = FI_ADDR_UNSPEC) {
    return post({.tagged = true,
                 .src = src,
                 .tag = tag,
                 .ignore = ignore,
                 .flags = flags,
                 .context = ctx(context)});
  }
  ssize_t cancel(size_t context) {
    Guard guard(domain.engine.lock());
    return receiver->cancel(ctx(context));
  }
  std::vector<Entry> entries() {
    std::vector<Entry> all;
    for (;;) {
      fi_cq_tagged_entry e{};
      fi_addr_t src = 0;
      const ssize_t n = fi_cq_readfrom(cq_->c(), &e, 1, &src);
      if (n == 1) {
        all.push_back({.context = reinterpret_cast<size_t>(e.op_context),
                       .flags = e.flags,
                       .len = e.len,
                       .buf = e.buf,
                       .data = e.data,
                       .tag = e.tag,
                       .src = src});
      } else if (n == -FI_EAVAIL) {
        fi_cq_err_entry f{};
        EXPECT_EQ(fi_cq_readerr(cq_->c(), &f, 0), 1);
        all.push_back({.context = reinterpret_cast<size_t>(f.op_context),
                       .flags = f.flags,
                       .len = f.len,
                       .buf = f.buf,
                       .data = f.data,
                       .tag = f.tag,
                       .src = f.src_addr,
                       .err = f.err,
                       .olen = f.olen,
                       .err_data{static_cast<const char *>(f.err_data), f.err_data_size}});
      } else {
        EXPECT_EQ(n, -FI_EAGAIN);
        return all;
      }
    }
  }
  // The only entry; a test fails if there are none or several.
  Entry entry() {
    std::vector<Entry> all = entries();
    EXPECT_EQ(all.size(), 1u);
    return all.size() == 1 ? all[0] : Entry{.err = -1};
  }
  std::vector<size_t> contexts() {
    std::vector<size_t> all;
    for (const Entry &e : entries()) all.push_back(e.context);
    return all;
  }

  // ---- the protocol ----
  static Message message(uint64_t tag, uint32_t source = 0) {
    return {.tagged = true, .source = source, .tag = tag};
  }
  static Message untagged(uint32_t source = 0) { return {.source = source}; }
  void arrive(Message m, std::string bytes) {
    Guard guard(domain.engine.lock());
    came(m, std::move(bytes));
  }
  void came(Message m, std::string bytes) {  // the same, with the lock held
    m.length = bytes.size();
    if (Receive *r = receiver->match(m)) return place(*r, m, bytes);
    auto *s = new Saved;
    s->bytes = std::move(bytes);
    s->message = m;
    ++saved_;
    receiver->save(*s);
  }
  void place(Receive &r, const Message &m, std::string bytes, int err = 0) {
    if (hold) return held.push_back({&r, m, std::move(bytes)});
    size_t done = 0;
    for (size_t i = 0; i < r.count; ++i) {
      const size_t n = std::min(r.iov[i].iov_len, bytes.size() - done);
      if (n != 0) std::memcpy(r.iov[i].iov_base, bytes.data() + done, n);
      done += n;
    }
    EXPECT_EQ(done, std::min(r.length, bytes.size()));
    receiver->complete(r, m, done, err);
  }
  // Completes the i-th held message.
  void finish(size_t i, int err = 0) {
    Guard guard(domain.engine.lock());
    const Held h = held[i];
    held.erase(held.begin() + long(i));
    hold = false;
    place(*h.receive, h.message, h.bytes, err);
    hold = true;
  }
  void deliver(Unexpected &m, Receive &r) override {
    auto &s = static_cast<Saved &>(m);
    EXPECT_FALSE(s.queued);
    const Message about = s.message;
    const std::string bytes = s.bytes;
    --saved_;
    delete &s;
    if (auto call = on_deliver) call();
    place(r, about, bytes);
  }
  void discard(Unexpected &m) override {
    auto &s = static_cast<Saved &>(m);
    EXPECT_FALSE(s.queued);
    discarded.push_back(s.bytes);
    --saved_;
    delete &s;
  }
  std::string source_address(const Message &m) override {
    return "address of " + std::to_string(m.source - Matcher::kFirstUnnamed);
  }
  // Drops the messages of a peer that is gone. Returns their number.
  size_t drop(uint32_t source) {
    size_t n = 0;
    receiver->visit_unexpected(source, [&](Unexpected &m) {
      receiver->forget(m);
      --saved_;
      delete static_cast<Saved *>(&m);
      ++n;
    });
    return n;
  }

  struct Held {
    Receive *receive;
    Message message;
    std::string bytes;
  };
  TestDomain domain;
  std::unique_ptr<Receiver> receiver;
  bool hold = false;
  std::vector<Held> held;
  std::vector<std::string> discarded;
  std::function<void()> on_deliver;
  char buf[256] = {}, buf2[256] = {};
  uint64_t received() { return cntr_->read(); }
  uint64_t failed() { return cntr_->readerr(); }
  Cq *cq_ = nullptr;
  Cntr *cntr_ = nullptr;
  Av *av_ = nullptr;

 private:
  size_t saved_ = 0;
};

}  // namespace weft::sdk
