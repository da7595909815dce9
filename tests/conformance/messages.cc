// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/messages.h"

#include <algorithm>
#include <ostream>

namespace weft::conformance::unconnected {

fi_msg message_of(const std::vector<iovec> &iov, fi_addr_t to, void *context) {
  fi_msg message{};
  message.msg_iov = iov.data();
  message.iov_count = iov.size();
  message.addr = to;
  message.context = context;
  message.data = kData;
  return message;
}

std::ostream &operator<<(std::ostream &out, const Form &form) {
  return out << form.name;
}

constinit const Form kSend{"Send", true, false, [](Net &net, Bytes &out) {
                             return fi_send(net[0].ep, out.data(), out.size(), nullptr,
                                            net.at(0, 1), &out);
                           }};
constinit const Form kSendv{"Sendv", true, false, [](Net &net, Bytes &out) {
                              const auto iov = cut(out, net[0].info->tx_attr->iov_limit);
                              return fi_sendv(net[0].ep, iov.data(), nullptr, iov.size(),
                                              net.at(0, 1), &out);
                            }};
constinit const Form kSendmsg{"Sendmsg", true, false, [](Net &net, Bytes &out) {
                                const auto iov =
                                    cut(out, std::min<size_t>(2, net[0].info->tx_attr->iov_limit));
                                const fi_msg message = message_of(iov, net.at(0, 1), &out);
                                return fi_sendmsg(net[0].ep, &message, FI_COMPLETION);
                              }};
constinit const Form kInject{
    "Inject", false, false, [](Net &net, Bytes &out) {
      Bytes copy = out;
      const ssize_t rc = fi_inject(net[0].ep, copy.data(), copy.size(), net.at(0, 1));
      std::fill(copy.begin(), copy.end(), 0xdd);  // the buffer is the caller's again
      return rc;
    }};

std::string form_name(const ::testing::TestParamInfo<std::tuple<Form, When>> &info) {
  return std::string(std::get<0>(info.param).name) +
         (std::get<1>(info.param) == When::kBefore ? "Expected" : "Unexpected");
}

void FormTest::arrives_once(Net &net, const std::vector<size_t> &sizes, bool exactly) {
  const auto [form, when] = GetParam();
  for (size_t size : sizes) {
    SCOPED_TRACE(size);
    Bytes out = pattern(size, unsigned(size)), in(size + 8, 0xee);
    if (!form.completes && size > net[0].info->tx_attr->inject_size) {
      EXPECT_LT(net.attempt([&, send = form.send] { return send(net, out); }), 0)
          << "above inject_size";
      continue;
    }
    const auto receive = [&] {
      must(fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
    };
    if (when == When::kBefore) receive();
    net.post([&, send = form.send] { return send(net, out); });
    if (when == When::kAfter) {
      net.settle();
      EXPECT_FALSE(poll(net[1].rx_cq).has_value()) << "a completion without a receive";
      receive();
    }
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    EXPECT_EQ(got.context, &in);
    EXPECT_EQ(got.len, size);
    EXPECT_EQ(got.flags & (exactly ? ~FI_REMOTE_CQ_DATA : FI_RECV | FI_MSG),
              uint64_t(FI_RECV | FI_MSG));
    EXPECT_EQ(bool(got.flags & FI_REMOTE_CQ_DATA), form.has_data);
    if (form.has_data) {
      EXPECT_EQ(got.data, kData);
    }
    EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
    for (size_t i = size; i < in.size(); ++i) ASSERT_EQ(in[i], 0xee) << "behind the buffer";
    if (form.completes) {
      const Completion sent = net.wait(net[0].tx_cq);
      EXPECT_EQ(sent.err, 0) << fi_strerror(sent.err);
      EXPECT_EQ(sent.context, &out);
      EXPECT_EQ(sent.flags & (exactly ? ~uint64_t(0) : FI_SEND | FI_MSG),
                uint64_t(FI_SEND | FI_MSG));
    }
  }
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq).has_value());
  EXPECT_FALSE(poll(net[1].rx_cq).has_value());
}

void scatters(Net &net, const std::vector<size_t> &sizes) {
  for (size_t size : sizes) {
    for (size_t parts = 1; parts <= net[1].info->rx_attr->iov_limit; ++parts) {
      SCOPED_TRACE(std::to_string(size) + " in " + std::to_string(parts));
      Bytes out = pattern(size, unsigned(parts)), in(size);
      const auto iov = cut(in, parts);
      if (parts % 2 == 0) {
        must(fi_recvv(net[1].ep, iov.data(), nullptr, iov.size(), FI_ADDR_UNSPEC, &in));
      } else {
        const fi_msg message = message_of(iov, FI_ADDR_UNSPEC, &in);
        must(fi_recvmsg(net[1].ep, &message, FI_COMPLETION));
      }
      net.post([&] { return kSend.send(net, out); });
      const Completion got = net.wait(net[1].rx_cq);
      ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
      EXPECT_EQ(got.len, size);
      EXPECT_EQ(in, out);
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    }
  }
}

int cancel_ends_a_receive(Net &net) {
  Bytes first(100), second(100);
  must(fi_recv(net[1].ep, first.data(), first.size(), nullptr, FI_ADDR_UNSPEC, &first));
  must(fi_recv(net[1].ep, second.data(), second.size(), nullptr, FI_ADDR_UNSPEC, &second));
  EXPECT_EQ(fi_cancel(net[1].ep.fid(), &first), 0);
  const int again = int(fi_cancel(net[1].ep.fid(), &first));
  const Completion cancelled = net.wait(net[1].rx_cq);
  EXPECT_EQ(cancelled.err, FI_ECANCELED);
  EXPECT_EQ(cancelled.context, &first);
  Bytes out = pattern(100, 3);
  net.post([&] { return kSend.send(net, out); });
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &second);
  EXPECT_EQ(second, out);
  net.wait(net[0].tx_cq);
  return again;
}

void each_cancel_ends_a_receive(Net &net, const std::function<ssize_t(void *context)> &post) {
  constexpr int kMany = 32;
  char one, other;
  for (int i = 0; i < kMany; ++i) {
    must(int(post(&one)));
    if (i == kMany / 2) must(int(post(&other)));
  }
  // Without progress: some may not have ended when the next call comes.
  for (int i = 0; i < kMany; ++i) EXPECT_EQ(fi_cancel(net[1].ep.fid(), &one), 0) << i;
  EXPECT_EQ(fi_cancel(net[1].ep.fid(), &one), -FI_ENOENT) << "there is none any more";
  for (int i = 0; i < kMany; ++i) {
    const Completion cancelled = net.wait(net[1].rx_cq);
    ASSERT_EQ(cancelled.err, FI_ECANCELED) << i;
    ASSERT_EQ(cancelled.context, &one) << i;
  }
  EXPECT_EQ(fi_cancel(net[1].ep.fid(), &other), 0);
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &other);
}

void names_its_sources(Net &net, const std::vector<size_t> &sizes) {
  for (size_t from : {3, 1, 2, 1}) {
    for (size_t size : sizes) {
      Bytes out = pattern(size, 1), in(size);
      must(fi_recv(net[0].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
      net.post(
          [&] { return fi_send(net[from].ep, out.data(), size, nullptr, net.at(from, 0), &out); });
      EXPECT_EQ(net.wait(net[0].rx_cq).source, net.at(0, from));
      net.wait(net[from].tx_cq);
    }
  }
}

}  // namespace weft::conformance::unconnected
