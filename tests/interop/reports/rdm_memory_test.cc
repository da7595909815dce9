// SPDX-License-Identifier: BSD-2-Clause
// Public reports about remote memory and atomics of reliable datagram endpoints, and about what
// fi_getinfo offers. reports.toml says who reported what.
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

Options with_memory(uint64_t more = 0) {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA | more;
  return options;
}

// Without remote access a region has no key that could be taken (aws-ofi-nccl registers so).
TEST(ReportedKeys, WithoutRemoteAccessAKeyIsNotTaken) {
  RDM_NEEDS(FI_RMA);
  Net net(1, with_memory());
  char memory[64];
  Handle<fid_mr> regions[3];
  for (Handle<fid_mr> &region : regions)
    EXPECT_EQ(fi_mr_reg(net[0].domain, memory, sizeof memory, FI_SEND | FI_RECV, 0, 7, 0,
                        region.out(), nullptr),
              0);
}

// fi_mr.3: who chooses keys is what fi_getinfo returned, not what was asked for.
TEST(ReportedKeys, WhoChoosesThemIsWhatFiGetinfoReturned) {
  RDM_NEEDS(FI_RMA);
  for (const uint64_t more : {uint64_t(0), uint64_t(FI_ATOMIC)}) {
    Options options = with_memory(more);
    options.mr_mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
    if (!find_info(options)) continue;
    SCOPED_TRACE(caps_text(options.caps));
    Net net(1, options);
    const bool chosen_by_provider = net[0].info->domain_attr->mr_mode & FI_MR_PROV_KEY;
    char memory[64];
    Handle<fid_mr> one, two;
    const auto reg = [&](Handle<fid_mr> &mr, uint64_t key) {
      return fi_mr_reg(net[0].domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                       key, 0, mr.out(), nullptr);
    };
    EXPECT_EQ(reg(one, 0), 0);
    EXPECT_EQ(reg(two, 0), chosen_by_provider ? 0 : -FI_ENOKEY);
    if (!chosen_by_provider) {
      EXPECT_EQ(reg(two, 1), 0);
    }
    if (demands(FI_EP_RDM).mr_mode & FI_MR_ENDPOINT) continue;  // no key before it is enabled
    EXPECT_NE(fi_mr_key(one), fi_mr_key(two));
  }
}

// fi_writemsg takes FI_REMOTE_CQ_DATA as fi_writedata implies it, and the target's completion says
// so.
TEST(ReportedMemory, ARemoteWriteWithDataIsToldAsSuch) {
  RDM_NEEDS(FI_MSG | FI_RMA);
  std::vector<uint8_t> out = pattern(1000, 1), window(1000);
  Net net(2, with_memory());
  if (net[0].info->domain_attr->cq_data_size == 0) GTEST_SKIP() << "no remote data";
  fid_mr *mr = net[1].expose(window.data(), window.size(), FI_REMOTE_WRITE, 3);
  const iovec iov{out.data(), out.size()};
  const fi_rma_iov remote{net[1].base_of(window.data()), out.size(), fi_mr_key(mr)};
  fi_msg_rma message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.addr = net.at(0, 1);
  message.context = &out;
  for (const bool by_message : {true, false}) {
    const uint64_t data = by_message ? 0x1234 : 0x4321;
    message.data = data;
    net.post([&] {
      return by_message ? fi_writemsg(net[0].ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION)
                        : fi_writedata(net[0].ep, out.data(), out.size(), nullptr, data,
                                       message.addr, remote.addr, remote.key, &out);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.data, net[1].arriving(data));
    EXPECT_TRUE(got.flags & FI_REMOTE_CQ_DATA);
    EXPECT_TRUE(got.flags & FI_REMOTE_WRITE);
  }
  EXPECT_EQ(window, out);
}

// The target is told of each write with data, also of one that says that more will come.
TEST(ReportedMemory, DataOfAWriteBeforeOthersIsTold) {
  RDM_NEEDS(FI_MSG | FI_RMA);
  std::vector<uint8_t> out = pattern(64, 1), window(64);
  Net net(2, with_memory());
  if (net[0].info->domain_attr->cq_data_size == 0) GTEST_SKIP() << "no remote data";
  fid_mr *mr = net[1].expose(window.data(), window.size(), FI_REMOTE_WRITE, 3);
  const iovec iov{out.data(), out.size()};
  const fi_rma_iov remote{net[1].base_of(window.data()), out.size(), fi_mr_key(mr)};
  fi_msg_rma message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.addr = net.at(0, 1);
  for (const uint64_t data : {1, 2, 3}) {
    message.data = data;
    net.post([&] {
      return fi_writemsg(net[0].ep, &message,
                         FI_REMOTE_CQ_DATA | FI_COMPLETION | (data < 3 ? FI_MORE : 0));
    });
  }
  for (const uint64_t data : {1, 2, 3}) {
    EXPECT_EQ(net.wait(net[1].rx_cq).data, data);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
}

// A write that fails tells whose it was and what it was; what came before and comes behind it
// works. One that had completed when it left has no context any more: that of its endpoint is told.
TEST(ReportedMemory, AWriteWithAWrongKeyFailsByItsOwnName) {
  RDM_NEEDS(FI_MSG | FI_RMA);
  std::vector<uint8_t> out = pattern(64, 1), window(64);
  Net net(2, with_memory());
  fid_mr *mr = net[1].expose(window.data(), window.size(), FI_REMOTE_WRITE, 3);
  const auto write = [&](uint64_t key) {
    net.post([&] {
      return fi_write(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1),
                      net[1].base_of(window.data()), key, &out);
    });
    return net.wait(net[0].tx_cq);
  };
  EXPECT_EQ(write(fi_mr_key(mr)).err, 0);
  Completion failed = write(fi_mr_key(mr) + 1);
  const void *context = &out;
  if (failed.err == 0) {
    failed = net.wait(net[0].tx_cq);
    context = &net[0];
  }
  EXPECT_NE(failed.err, 0);
  EXPECT_EQ(failed.context, context);
  EXPECT_TRUE(failed.flags & FI_WRITE);
  EXPECT_TRUE(failed.flags & FI_RMA);
  net.exchange(0, 1);
}

TEST(ReportedMemory, NothingCanBeWrittenFromNowhere) {
  RDM_NEEDS(FI_MSG | FI_RMA);
  std::vector<uint8_t> window(64);
  Net net(2, with_memory());
  fid_mr *mr = net[1].expose(window.data(), window.size(), FI_REMOTE_WRITE | FI_REMOTE_READ, 3);
  const uint64_t at = net[1].base_of(window.data()), key = fi_mr_key(mr);
  const fi_addr_t to = net.at(0, 1);
  net.post([&] { return fi_write(net[0].ep, nullptr, 0, nullptr, to, at, key, &net); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.post([&] { return fi_read(net[0].ep, nullptr, 0, nullptr, to, at, key, &net); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

// fi_cntr.3: FI_WRITE counts base atomics, FI_READ those that fetch or compare.
TEST(ReportedMemory, AtomicsCountAsWritesOrAsReads) {
  RDM_NEEDS(FI_MSG | FI_RMA | FI_ATOMIC);
  if (find_info()->domain_attr->cntr_cnt == 0) GTEST_SKIP() << "no counters";
  fid_cntr *writes[2], *reads[2];
  size_t i = 0;
  uint64_t window = 0, operand = 1, compare = 2, result = 0;
  Net net(2, with_memory(FI_ATOMIC), [&](Node &node) {
    writes[i] = node.count(FI_WRITE);
    reads[i++] = node.count(FI_READ);
  });
  fid_mr *mr = net[1].expose(&window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, 3);
  const uint64_t at = net[1].base_of(&window), key = fi_mr_key(mr);
  const fi_addr_t to = net.at(0, 1);
  fid_ep *ep = net[0].ep;
  const std::function<ssize_t()> operations[] = {
      [&] { return fi_atomic(ep, &operand, 1, nullptr, to, at, key, FI_UINT64, FI_SUM, nullptr); },
      [&] {
        return fi_fetch_atomic(ep, &operand, 1, nullptr, &result, nullptr, to, at, key, FI_UINT64,
                               FI_SUM, nullptr);
      },
      [&] {
        return fi_compare_atomic(ep, &operand, 1, nullptr, &compare, nullptr, &result, nullptr, to,
                                 at, key, FI_UINT64, FI_CSWAP, nullptr);
      }};
  for (const auto &operation : operations) {
    net.post(operation);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  net.wait_count(writes[0], 1);
  net.wait_count(reads[0], 2);
  EXPECT_EQ(fi_cntr_read(writes[0]), 1u);
  EXPECT_EQ(fi_cntr_read(reads[0]), 2u);
  EXPECT_EQ(window, 1u);
  EXPECT_EQ(result, 2u);
}

// Whatever is offered can be opened, also addresses that nobody asked for.
TEST(ReportedInfo, EveryOfferOpens) {
  Info list;
  must(try_info(list, nullptr, nullptr, 0, make_hints(Options()).get()));
  int count = 0;
  for (const fi_info *info = list.get(); info != nullptr; info = info->next) {
    if (info->fabric_attr->prov_name != stack()) continue;
    SCOPED_TRACE(fi_tostr(info, FI_TYPE_INFO));
    Application app{Options()};
    app.open_fabric(info);
    fi_av_attr attr{};
    must(fi_av_open(app.domain, &attr, app.av.out(), nullptr));
    app.open_queues();
    ASSERT_EQ(fi_endpoint(app.domain, app.info.get(), app.ep.out(), nullptr), 0);
    app.bind_queues();
    ASSERT_EQ(fi_enable(app.ep), 0);
    EXPECT_FALSE(app.name().empty());
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace weft::conformance::rdm
