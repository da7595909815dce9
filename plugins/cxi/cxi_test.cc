// SPDX-License-Identifier: BSD-2-Clause
// What cxi has of its own, over the C API: addresses and PIDs, the extensions of fi_cxi_ext.h,
// keys.
#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_trigger.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/process.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kStandardKey = 200, kOptimizedKey = 7;

Options with(uint64_t caps) {
  Options options;
  options.caps |= caps;
  return options;
}

uint32_t word_of(const std::string &name) {
  uint32_t word;
  std::memcpy(&word, name.data(), sizeof word);
  return word;
}

// ---- addresses ----

bool is_of_software() {
  return std::getenv("FI_CXI_LIBCXI") == nullptr;
}

uint32_t nic_of(const fi_info &info) {
  uint32_t word;
  std::memcpy(&word, info.src_addr, sizeof word);
  return word >> 9;
}

TEST(Cxi, NodesAndServicesNameNicsAndPids) {
  const Info first = ask({}, {}, "cxi0", nullptr, FI_SOURCE);
  const Info second = ask({}, {}, "cxi1", nullptr, FI_SOURCE);
  ASSERT_TRUE(first && second);
  const uint32_t nics[] = {nic_of(*first), nic_of(*second)};
  ASSERT_NE(nics[0], nics[1]);
  char hexadecimal[16], decimal[16], mac[32];
  std::snprintf(hexadecimal, sizeof hexadecimal, "0x%x", nics[1]);
  std::snprintf(decimal, sizeof decimal, "%u", nics[0]);
  std::snprintf(mac, sizeof mac, "02:00:00:%02x:%02x:%02x", nics[0] >> 16, nics[0] >> 8 & 255,
                nics[0] & 255);
  struct Case {
    const char *node, *service;
    uint32_t nic, pid;
  };
  std::vector<Case> cases = {{"cxi0", "17", nics[0], 17},
                             {"cxi1", "510", nics[1], 510},
                             {hexadecimal, "3", nics[1], 3},
                             {decimal, nullptr, nics[0], 511},
                             {mac, "4", nics[0], 4}};
  if (is_of_software()) cases.push_back({"127.0.0.2", "9", nics[1], 9});
  for (const Case &c : cases) {
    SCOPED_TRACE(c.node);
    const Info own = ask({}, {}, c.node, c.service, FI_SOURCE);
    ASSERT_TRUE(own);
    ASSERT_EQ(own->src_addrlen, 8u);
    uint32_t word;
    std::memcpy(&word, own->src_addr, sizeof word);
    EXPECT_EQ(word >> 9, c.nic);
    EXPECT_EQ(word & 511, c.pid);
    EXPECT_STREQ(own->domain_attr->name, c.nic == nics[0] ? "cxi0" : "cxi1");
    const Info peer = ask({}, {}, c.node, c.service != nullptr ? c.service : "0");
    ASSERT_TRUE(peer);
    ASSERT_EQ(peer->dest_addrlen, 8u);
    std::memcpy(&word, peer->dest_addr, sizeof word);
    EXPECT_EQ(word >> 9, c.nic);
  }
  for (const char *const wrong : {"511", "-1", "x", "70000"}) {
    fi_info *list = nullptr;
    EXPECT_EQ(fi_getinfo(kApi, "cxi0", wrong, FI_SOURCE, make_hints(Options()).get(), &list),
              -FI_ENODATA)
        << wrong;
  }
  EXPECT_FALSE(ask({}, {}, "cxi9", nullptr, FI_SOURCE));
  EXPECT_FALSE(ask({}, {}, "127.0.0.77", "1")) << "an address of this host, and of no NIC";
}

size_t offers_of_cxi(const fi_info *hints) {
  Info list;
  if (try_info(list, nullptr, nullptr, 0, hints) != 0) return 0;
  size_t count = 0;
  for (const fi_info *one = list.get(); one != nullptr; one = one->next)
    count += std::string_view(one->fabric_attr->prov_name) == "cxi";
  return count;
}

// A program that does not know what it may get never gets one.
TEST(Cxi, WhoNamesItIsOfferedANicInSoftware) {
  if (!is_of_software()) GTEST_SKIP() << "this is a card";
  if (!in_fresh_process()) return;
  struct Case {
    const char *variable, *value, *prov_name;
    bool is_offered;
  };
  for (const Case &c : {Case{"FI_CXI_ODP", "0", nullptr, false},
                        {"FI_CXI_ODP", "0", "cxi", true},
                        {"FI_CXI_ODP", "0", "udp,CXI", true},
                        {"FI_CXI_ODP", "0", "^tcp", false},
                        {"FI_PROVIDER", "cxi", nullptr, true},
                        {"FI_PROVIDER", "tcp,cxi", nullptr, true},
                        {"FI_PROVIDER", "^tcp", nullptr, false},
                        {"FI_CXI_SOFT", "1", nullptr, true},
                        {"FI_CXI_SOFT", "0", "cxi", false},
                        {"FI_CXI_SOFT_DEVICES", "cxi0=127.0.0.9", nullptr, false}}) {
    Child program([&](int socket) {
      setenv(c.variable, c.value, 1);
      const Info hints = make_hints(Options());
      free(std::exchange(hints->fabric_attr->prov_name, nullptr));
      if (c.prov_name != nullptr) hints->fabric_attr->prov_name = strdup(c.prov_name);
      tell(socket, offers_of_cxi(c.prov_name != nullptr ? hints.get() : nullptr));
    });
    EXPECT_EQ(hear(program.socket()) != 0, c.is_offered)
        << c.variable << "=" << c.value << " " << (c.prov_name != nullptr ? c.prov_name : "");
    program.join();
  }
}

// Addresses of NICs in software have a mark of their host. One with another mark is refused.
TEST(Cxi, APeerOfAnotherHostIsRefused) {
  Node node{Options()};
  std::string own = node.name(), other = own, unmarked = own;
  if (!is_of_software()) {
    EXPECT_EQ(own.substr(6), std::string(2, '\0')) << "hardware has padding there";
    other[6] = 1;
    fi_addr_t where = FI_ADDR_UNSPEC;
    EXPECT_EQ(fi_av_insert(node.av, other.data(), 1, &where, 0, nullptr), 1);
    return;
  }
  EXPECT_NE(own.substr(6), std::string(2, '\0'));
  other[6] = char(other[6] + 1);
  unmarked[6] = unmarked[7] = 0;
  fi_addr_t out[3] = {};
  int errors[3] = {};
  const std::string all = own + other + unmarked;
  EXPECT_EQ(fi_av_insert(node.av, all.data(), 3, out, FI_SYNC_ERR, errors), 2);
  EXPECT_EQ(errors[0], 0);
  EXPECT_EQ(errors[1], FI_EHOSTUNREACH);
  EXPECT_EQ(errors[2], 0) << "a number that a person has written is believed";
  EXPECT_EQ(out[1], FI_ADDR_NOTAVAIL);
  std::string found(8, '\0');
  size_t length = found.size();
  ASSERT_EQ(fi_av_lookup(node.av, out[0], found.data(), &length), 0);
  EXPECT_EQ(found, own) << "so it may be passed on";
}

TEST(Cxi, APidBelongsToOneEndpoint) {
  Options options;
  options.service = "33";
  Node first(options);
  EXPECT_EQ(word_of(first.name()) & 511, 33u);
  {
    Options same = options;
    EXPECT_THROW(Node second(same), std::runtime_error) << "fi_enable: -FI_EADDRINUSE";
    same.node = "cxi1";
    Node elsewhere(same);  // another NIC has PIDs of its own
    EXPECT_EQ(word_of(elsewhere.name()) & 511, 33u);
    EXPECT_NE(elsewhere.name(), first.name());
  }
}

TEST(Cxi, TheNicSaysWhatItIs) {
  const Info info = ask();
  ASSERT_TRUE(info && info->nic);
  const bool over_libcxi = std::getenv("FI_CXI_LIBCXI") != nullptr;
  EXPECT_STREQ(info->nic->device_attr->device_id, over_libcxi ? "Cassini" : "software NIC");
  EXPECT_STREQ(info->nic->device_attr->driver, over_libcxi ? "cxi_core" : "software");
  EXPECT_EQ(info->nic->link_attr->state, FI_LINK_UP);
  EXPECT_EQ(info->nic->bus_attr->bus_type, over_libcxi ? FI_BUS_PCI : FI_BUS_UNKNOWN);
  EXPECT_EQ(info->nic->device_attr->vendor_id != nullptr, over_libcxi);
  const auto &own = *static_cast<cxip_nic_attr *>(info->nic->prov_attr);
  EXPECT_EQ(own.version, uint32_t(FI_CXI_NIC_ATTR_VER));
  EXPECT_EQ(own.addr, nic_of(*info));
  EXPECT_EQ(own.default_rgroup_id, 1u);
  EXPECT_EQ(own.default_vni, 10u);
}

// Each copy of an info has its own, which can be read anew.
TEST(Cxi, TheAttributesOfANicAreReadAnew) {
  Info info = ask();
  ASSERT_TRUE(info && info->nic);
  const Info copy(fi_dupinfo(info.get()));
  info.reset();
  ASSERT_TRUE(copy && copy->nic);
  EXPECT_STREQ(copy->nic->device_attr->name, "cxi0");
  EXPECT_EQ(static_cast<cxip_nic_attr *>(copy->nic->prov_attr)->addr, nic_of(*copy));
  fid *const nic = &copy->nic->fid;
  const bool over_libcxi = std::getenv("FI_CXI_LIBCXI") != nullptr;
  if (over_libcxi) setenv("WEFT_FAKECXI_LINK", "0", 1);
  EXPECT_EQ(fi_control(nic, FI_OPT_CXI_NIC_REFRESH_ATTR, nullptr), 0);
  EXPECT_EQ(copy->nic->link_attr->state, over_libcxi ? FI_LINK_DOWN : FI_LINK_UP);
  unsetenv("WEFT_FAKECXI_LINK");
  EXPECT_EQ(fi_control(nic, FI_OPT_CXI_NIC_REFRESH_ATTR, nullptr), 0);
  EXPECT_EQ(copy->nic->link_attr->state, FI_LINK_UP);
  EXPECT_EQ(fi_control(nic, FI_DUP, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_control(nic, FI_ENABLE, nullptr), -FI_ENOSYS);
  char text[16];
  EXPECT_EQ(nic->ops->tostr(nic, text, sizeof text), 0);
  EXPECT_EQ(std::string(text), over_libcxi ? "nic: cxi0, Cass" : "nic: cxi0, soft") << "cut";
}

TEST(Cxi, ThousandPidsWouldBeTooMany) {
  // 511 endpoints on a NIC, and no more.
  std::vector<std::unique_ptr<Node>> nodes;
  Options options;
  options.rx_size = options.tx_size = 16;
  auto first = std::make_unique<Node>(options);
  bool refused = false;
  for (int i = 0; i < 512 && !refused; ++i) {
    try {
      nodes.push_back(std::make_unique<Node>(options, first.get()));
    } catch (const std::runtime_error &) {
      refused = true;
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_GT(nodes.size(), 400u);
  // The last one is reached as the first.
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  const fi_addr_t to = first->insert(nodes.back()->name());
  must(fi_trecv(nodes.back()->ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr));
  must(fi_tsend(first->ep, out.data(), 100, nullptr, to, 1, nullptr));
  const Deadline deadline;
  while (in != out && !deadline.passed()) {
    first->progress();
    nodes.back()->progress();
  }
  EXPECT_EQ(in, out);
  while (!nodes.empty()) nodes.pop_back();
}

// ---- the extensions of a domain ----

TEST(CxiExtensions, TheDomainHasATable) {
  Net net(2);
  fi_cxi_dom_ops *ops = nullptr;
  for (const char *const name : {FI_CXI_DOM_OPS_1, FI_CXI_DOM_OPS_4, FI_CXI_DOM_OPS_6})
    EXPECT_EQ(fi_open_ops(net[0].domain.fid(), name, 0, reinterpret_cast<void **>(&ops), nullptr),
              0);
  void *other = nullptr;
  EXPECT_EQ(fi_open_ops(net[0].domain.fid(), "dom_ops_v99", 0, &other, nullptr), -FI_EINVAL);
  ASSERT_NE(ops, nullptr);
  unsigned group = 9, switches = 9, port = 9;
  EXPECT_EQ(ops->topology(net[0].domain.fid(), &group, &switches, &port), 0);
  // The parts of the NIC's address (fi_cxi.7, topology).
  EXPECT_EQ(group << 11 | switches << 6 | port, word_of(net[0].name()) >> 9);
  size_t depth = 0;
  EXPECT_EQ(ops->get_dwq_depth(net[0].domain.fid(), &depth), 0);
  EXPECT_EQ(depth, 504u);
  EXPECT_EQ(ops->enable_hybrid_mr_desc(net[0].domain.fid(), true), 0);
  uint64_t value;
  timespec when;
  EXPECT_EQ(ops->cntr_read(net[0].domain.fid(), 99999, &value, &when), -FI_EINVAL);
}

TEST(CxiExtensions, MessagesWithoutAReceiveAreListed) {
  Net net(2, with(FI_SOURCE));
  fi_cxi_dom_ops *ops = nullptr;
  must(fi_open_ops(net[1].domain.fid(), FI_CXI_DOM_OPS_6, 0, reinterpret_cast<void **>(&ops),
                   nullptr));
  std::vector<uint8_t> out = pattern(50'000, 1), in(50'000);
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 100, nullptr, net.at(0, 1), 5, nullptr); });
  net.post([&] {
    return fi_senddata(net[0].ep, out.data(), 50'000, nullptr, 77, net.at(0, 1), nullptr);
  });
  fi_cq_tagged_entry entries[4];
  fi_addr_t sources[4];
  size_t found = 0;
  EXPECT_TRUE(net.until(
      [&] { return ops->ep_get_unexp_msgs(net[1].ep, entries, 4, sources, &found) == 2; }));
  EXPECT_EQ(found, 2u);
  for (size_t i = 0; i < 2; ++i) {
    const bool tagged = entries[i].flags & FI_TAGGED;
    EXPECT_EQ(entries[i].len, tagged ? 100u : 50'000u);
    EXPECT_EQ(entries[i].tag, tagged ? 5u : 0u);
    if (!tagged) {
      EXPECT_EQ(entries[i].data, 77u);
      EXPECT_TRUE(entries[i].flags & FI_REMOTE_CQ_DATA);
    }
    EXPECT_EQ(sources[i], net.at(1, 0));
  }
  EXPECT_EQ(ops->ep_get_unexp_msgs(net[1].ep, nullptr, 0, nullptr, &found), 0u);
  EXPECT_EQ(found, 2u);
  // They are still there.
  must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  EXPECT_EQ(net.wait(net[1].rx_cq).len, 50'000u);
  EXPECT_EQ(in, out);
  must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, &in));
  EXPECT_EQ(net.wait(net[1].rx_cq).len, 100u);
}

TEST(CxiExtensions, SettingsOfADomain) {
  Options options = with(FI_RMA);
  Net net(1, options);
  fid *const domain = net[0].domain.fid();
  bool value = false;
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_GET_OPTIMIZED_MRS, &value), 0);
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_OPTIMIZED_MRS, &value), -FI_EINVAL)
      << "only with FI_MR_PROV_KEY";
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_GET_MR_MATCH_EVENTS, &value), 0);
  EXPECT_FALSE(value);
  value = true;
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_MR_MATCH_EVENTS, &value), -FI_EINVAL)
      << "there is an endpoint";
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_GET_PROV_KEY_CACHE, nullptr), -FI_EINVAL);

  options.mr_mode = FI_MR_PROV_KEY;
  const Info info = find_info(options, FI_SOURCE);
  ASSERT_TRUE(info);
  ASSERT_TRUE(info->domain_attr->mr_mode & FI_MR_PROV_KEY);
  Application app(options);
  app.open_fabric(info.get());
  EXPECT_EQ(fi_control(app.domain.fid(), FI_OPT_CXI_SET_MR_MATCH_EVENTS, &value), 0);
  value = false;
  EXPECT_EQ(fi_control(app.domain.fid(), FI_OPT_CXI_SET_OPTIMIZED_MRS, &value), 0);
  EXPECT_EQ(fi_control(app.domain.fid(), FI_OPT_CXI_SET_PROV_KEY_CACHE, &value), 0);
  value = true;
  EXPECT_EQ(fi_control(app.domain.fid(), FI_OPT_CXI_GET_OPTIMIZED_MRS, &value), 0);
  EXPECT_FALSE(value);
}

// ---- counters ----

// Without a call of the library.
bool eventually(const std::function<bool()> &holds) {
  const auto end = std::chrono::steady_clock::now() + patience();
  while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return holds();
}

TEST(CxiExtensions, ACounterIsWrittenBack) {
  Net net(1, with(FI_TRIGGER));
  fid_cntr *const counter = net[0].count(0);
  fi_cxi_cntr_ops *ops = nullptr;
  must(fi_open_ops(&counter->fid, FI_CXI_COUNTER_OPS, 0, reinterpret_cast<void **>(&ops), nullptr));
  void *other = nullptr;
  EXPECT_EQ(fi_open_ops(&counter->fid, "cxi_other", 0, &other, nullptr), -FI_EINVAL);
  // Only the hardware has registers: neither a NIC in software nor a double sees what others store.
  void *registers = nullptr;
  size_t length = 0;
  EXPECT_EQ(ops->get_mmio_addr(&counter->fid, nullptr, &length), -FI_EINVAL);
  EXPECT_EQ(ops->get_mmio_addr(&counter->fid, &registers, &length), -FI_ENOSYS);
  EXPECT_EQ(registers, nullptr);
  alignas(8) uint64_t word = 0;
  EXPECT_EQ(ops->set_wb_buffer(&counter->fid, &word, 4), -FI_EINVAL);
  must(ops->set_wb_buffer(&counter->fid, &word, 8));
  must(fi_cntr_set(counter, 5));
  EXPECT_EQ(fi_cxi_cntr_wb_read(&word), 5u);
  must(fi_cntr_adderr(counter, 2));
  EXPECT_EQ(fi_cxi_cntr_wb_readerr(&word), 2u);
  must(fi_cntr_seterr(counter, 0));
}

// A success is written back where it is asked for, or when somebody reads the counter.
TEST(CxiExtensions, ACounterIsWrittenBackThoughNobodyPolls) {
  for (const bool is_own : {true, false}) {
    SCOPED_TRACE(is_own);  // the counter that starts it
    Net net(2, with(FI_RMA | FI_TRIGGER));
    fid_cntr *const counter = net[0].count(0), *const start = is_own ? counter : net[0].count(0);
    fi_cxi_cntr_ops *ops = nullptr;
    must(fi_open_ops(&counter->fid, FI_CXI_COUNTER_OPS, 0, reinterpret_cast<void **>(&ops),
                     nullptr));
    alignas(8) uint64_t word = 0;
    must(ops->set_wb_buffer(&counter->fid, &word, 8));
    uint64_t window = 0, value = 3;
    net[1].expose(&window, 8, FI_REMOTE_WRITE, kStandardKey);
    const iovec from{&value, 8};
    fi_rma_iov target{0, 8, kStandardKey};
    fi_op_rma write{};
    write.ep = net[0].ep;
    write.msg.msg_iov = &from;
    write.msg.iov_count = 1;
    write.msg.rma_iov = &target;
    write.msg.rma_iov_count = 1;
    write.msg.addr = net.at(0, 1);
    fi_deferred_work work{};
    work.triggering_cntr = start;
    work.completion_cntr = counter;
    work.op_type = FI_OP_WRITE;
    work.op.rma = &write;
    must(fi_cntr_set(counter, 5));
    write.flags = FI_CXI_CNTR_WB;
    work.threshold = is_own ? 6 : 1;
    must(fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &work));
    must(fi_cntr_add(start, 1));
    const uint64_t reached = is_own ? 7 : 6;
    const auto written = [&] { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); };
    EXPECT_TRUE(eventually([&] { return written() == fi_cxi_gen_cntr_success(reached); }))
        << fi_cxi_cntr_wb_read(&word);
    EXPECT_EQ(window, 3u);
    // Another one without that flag: whoever reads the counter has it written, too.
    write.flags = 0;
    fi_deferred_work second = work;
    second.threshold = 0;
    must(fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &second));
    EXPECT_TRUE(net.until([&] { return fi_cntr_read(counter) == reached + 1; }));
    EXPECT_EQ(written(), fi_cxi_gen_cntr_success(reached + 1));
    must(ops->set_wb_buffer(&counter->fid, nullptr, 0));
  }
}

// ---- regions and flags ----

TEST(Cxi, KeysHave32BitsOrAreTheProviders) {
  Net net(2, with(FI_RMA));
  uint64_t window[2] = {};
  fid_mr *region = nullptr;
  EXPECT_EQ(fi_mr_reg(net[1].domain, window, 16, FI_REMOTE_WRITE, 0, uint64_t{1} << 32, 0, &region,
                      nullptr),
            -FI_EKEYREJECTED);
  must(fi_mr_reg(net[1].domain, window, 16, FI_REMOTE_WRITE, 0, kStandardKey, 0, &region, nullptr));
  fid_mr *same = nullptr;
  EXPECT_EQ(
      fi_mr_reg(net[1].domain, window, 16, FI_REMOTE_WRITE, 0, kStandardKey, 0, &same, nullptr),
      -FI_ENOKEY);
  EXPECT_EQ(fi_mr_enable(region), -FI_EOPBADSTATE) << "it is bound to no endpoint";
  must(fi_close(&region->fid));
}

TEST(Cxi, ProviderKeysReachTheirRegions) {
  Options options = with(FI_RMA | FI_ATOMIC);
  options.mr_mode = FI_MR_PROV_KEY;
  Net net(2, options);
  std::vector<std::vector<uint64_t>> windows(120, std::vector<uint64_t>(4));
  std::vector<uint64_t> keys;
  for (auto &window : windows)  // more than there are optimized ones
    keys.push_back(
        fi_mr_key(net[1].expose(window.data(), 32, FI_REMOTE_READ | FI_REMOTE_WRITE, 1)));
  for (size_t i = 0; i < windows.size(); ++i) {
    uint64_t value = 1000 + i, one = 1, read = 0;
    net.post(
        [&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 8, keys[i], nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post([&] {
      return fi_atomic(net[0].ep, &one, 1, nullptr, net.at(0, 1), 8, keys[i], FI_UINT64, FI_SUM,
                       nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post(
        [&] { return fi_read(net[0].ep, &read, 8, nullptr, net.at(0, 1), 8, keys[i], nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(read, 1001 + i);
    EXPECT_EQ(windows[i][1], 1001 + i);
  }
  // The key of a region that is gone reaches nothing, nor what comes after it.
  const uint64_t old = keys.back();
  net[1].regions.pop_back();
  uint64_t value = 1;
  net.post([&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, old, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, FI_EIO);
}

TEST(Cxi, FlagsOfItsOwnAreChecked) {
  Net net(2, with(FI_RMA | FI_ATOMIC));
  uint64_t window[4] = {}, value = 2, old = 0;
  net[1].expose(window, 32, FI_REMOTE_READ | FI_REMOTE_WRITE, kOptimizedKey);
  uint64_t standard[4] = {};
  net[1].expose(standard, 32, FI_REMOTE_READ | FI_REMOTE_WRITE, kStandardKey);
  const fi_ioc operand{&value, 1};
  fi_ioc result{&old, 1};
  fi_rma_ioc target{0, 1, kOptimizedKey};
  fi_msg_atomic atomic{};
  atomic.msg_iov = &operand;
  atomic.iov_count = 1;
  atomic.addr = net.at(0, 1);
  atomic.rma_iov = &target;
  atomic.rma_iov_count = 1;
  atomic.datatype = FI_UINT64;
  atomic.op = FI_SUM;
  fid_ep *const ep = net[0].ep;
  EXPECT_EQ(fi_atomicmsg(ep, &atomic, FI_CXI_UNRELIABLE | FI_COMPLETION), 0);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(fi_atomicmsg(ep, &atomic, FI_CXI_HRP | FI_CXI_UNRELIABLE | FI_COMPLETION), 0);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(window[0], 4u);
  EXPECT_EQ(fi_atomicmsg(ep, &atomic, FI_CXI_HRP), -FI_EINVAL) << "needs FI_CXI_UNRELIABLE";
  EXPECT_EQ(fi_fetch_atomicmsg(ep, &atomic, &result, nullptr, 1, FI_CXI_UNRELIABLE), -FI_EINVAL);
  target.key = kStandardKey;
  EXPECT_EQ(fi_atomicmsg(ep, &atomic, FI_CXI_UNRELIABLE), -FI_EINVAL) << "no optimized region";
  // Without a PCIe fetch-and-add in the driver.
  fi_atomic_attr attr{};
  EXPECT_EQ(
      fi_query_atomic(net[0].domain, FI_UINT32, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_CXI_PCIE_AMO),
      -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_fetch_atomicmsg(ep, &atomic, &result, nullptr, 1, FI_CXI_PCIE_AMO), -FI_EOPNOTSUPP);
  fi_msg message{};
  message.addr = net.at(0, 1);
  EXPECT_EQ(fi_sendmsg(ep, &message, FI_CXI_HRP), -FI_EBADFLAGS);
  const iovec from{&value, 8};
  fi_rma_iov at{8, 8, kOptimizedKey};
  fi_msg_rma write{};
  write.msg_iov = &from;
  write.iov_count = 1;
  write.addr = net.at(0, 1);
  write.rma_iov = &at;
  write.rma_iov_count = 1;
  EXPECT_EQ(fi_writemsg(ep, &write, FI_CXI_HRP | FI_COMPLETION), 0);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(window[1], 2u);
  EXPECT_EQ(fi_writemsg(ep, &write, FI_CXI_WEAK_FENCE | FI_COMPLETION), 0);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

TEST(Cxi, APcieFetchAndAddTakesTheDriversPermission) {
  if (!in_fresh_process({"FI_CXI_SOFT_PCIE_FADD=1"})) return;
  Net net(2, with(FI_ATOMIC));
  uint32_t window[2] = {40, 0}, value = 2, old = 0;
  net[1].expose(window, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, kStandardKey);
  fi_atomic_attr attr{};
  EXPECT_EQ(
      fi_query_atomic(net[0].domain, FI_UINT32, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_CXI_PCIE_AMO),
      0);
  EXPECT_EQ(fi_query_atomic(net[0].domain, FI_UINT32, FI_SUM, &attr, FI_CXI_PCIE_AMO),
            -FI_EOPNOTSUPP)
      << "it fetches";
  EXPECT_EQ(
      fi_query_atomic(net[0].domain, FI_FLOAT, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_CXI_PCIE_AMO),
      -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_query_atomic(net[0].domain, FI_UINT32, FI_MAX, &attr, 0), -FI_EOPNOTSUPP)
      << "this is what it gives way for";
  EXPECT_EQ(fi_query_atomic(net[0].domain, FI_UINT32, FI_MIN, &attr, 0), 0);
  const fi_ioc operand{&value, 1};
  fi_ioc result{&old, 1};
  fi_rma_ioc target{0, 1, kStandardKey};
  fi_msg_atomic atomic{};
  atomic.msg_iov = &operand;
  atomic.iov_count = 1;
  atomic.addr = net.at(0, 1);
  atomic.rma_iov = &target;
  atomic.rma_iov_count = 1;
  atomic.datatype = FI_UINT32;
  atomic.op = FI_SUM;
  EXPECT_EQ(
      fi_fetch_atomicmsg(net[0].ep, &atomic, &result, nullptr, 1, FI_CXI_PCIE_AMO | FI_COMPLETION),
      0);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(old, 40u);
  EXPECT_EQ(window[0], 42u);
}

// fi_cxi.7, "PCIe AMO": what each value of amo_remap_to_pcie_fadd takes away, and no more.
class CxiPcie : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Driver, CxiPcie, ::testing::Values(-1, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10),
                         [](const auto &info) {
                           return info.param < 0 ? "Off" : std::to_string(info.param);
                         });

TEST_P(CxiPcie, AFetchAndAddCostsOneOperation) {
  const std::string variable = "FI_CXI_SOFT_PCIE_FADD=" + std::to_string(GetParam());
  if (!in_fresh_process({variable.c_str()})) return;
  static constexpr std::pair<int, enum fi_op> kOps[] = {
      {0, FI_MIN}, {1, FI_MAX},  {2, FI_SUM},  {4, FI_LOR},  {5, FI_LAND},
      {6, FI_BOR}, {7, FI_BAND}, {8, FI_LXOR}, {9, FI_BXOR}, {-2, FI_ATOMIC_READ}};
  Net net(2, with(FI_ATOMIC));
  const auto query = [&](enum fi_op op, uint64_t flags) {
    fi_atomic_attr attr{};
    return fi_query_atomic(net[0].domain, FI_UINT32, op, &attr, flags);
  };
  for (const auto &[number, op] : kOps) {
    EXPECT_EQ(query(op, FI_FETCH_ATOMIC), number == GetParam() ? -FI_EOPNOTSUPP : 0) << number;
    EXPECT_EQ(query(op, FI_FETCH_ATOMIC | FI_CXI_PCIE_AMO),
              op == FI_SUM && GetParam() >= 0 ? 0 : -FI_EOPNOTSUPP)
        << number;
  }
  uint32_t window[2] = {40, 0}, value = 2, old = 0;
  net[1].expose(window, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, kStandardKey);
  const fi_ioc operand{&value, 1};
  fi_ioc result{&old, 1};
  fi_rma_ioc target{0, 1, kStandardKey};
  fi_msg_atomic atomic{};
  atomic.msg_iov = &operand;
  atomic.iov_count = 1;
  atomic.addr = net.at(0, 1);
  atomic.rma_iov = &target;
  atomic.rma_iov_count = 1;
  atomic.datatype = FI_UINT32;
  atomic.op = FI_SUM;
  uint32_t sum = 40;
  for (const uint64_t flag : {uint64_t{0}, uint64_t(FI_CXI_PCIE_AMO)}) {
    SCOPED_TRACE(flag);
    const bool can = flag != 0 ? GetParam() >= 0 : GetParam() != 2;
    EXPECT_EQ(fi_fetch_atomicmsg(net[0].ep, &atomic, &result, nullptr, 1, flag | FI_COMPLETION),
              can ? 0 : -FI_EOPNOTSUPP);
    if (!can) continue;
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(old, sum);
    EXPECT_EQ(window[0], sum += value);
  }
}

// ---- resources ----

// A runtime folder of its own, so that the test is the first to open a NIC, and says its limits.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/cxi_test.XXXXXX";
    path_ = mkdtemp(name) != nullptr ? name : "";
    variable_ = "WEFT_RUNTIME_DIR=" + path_;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const char *variable() const { return variable_.c_str(); }

 private:
  std::string path_, variable_;
};

TEST(Cxi, WorkWithoutAPlaceIsRefused) {
  const Folder folder;
  if (!in_fresh_process({"FI_CXI_SOFT_TRIGGERED=4", folder.variable()})) return;
  Net net(1, with(FI_TRIGGER));
  fid_cntr *const start = net[0].count(0), *const target = net[0].count(0);
  fi_op_cntr add{.cntr = target, .value = 1};
  fi_deferred_work works[3];
  int refused = 0;
  for (fi_deferred_work &work : works) {
    work = {};
    work.threshold = 1;
    work.triggering_cntr = start;
    work.op_type = FI_OP_CNTR_ADD;
    work.op.cntr = &add;
    const int rc = fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &work);
    EXPECT_TRUE(rc == 0 || rc == -FI_ENOSPC) << rc;
    refused += rc != 0;
  }
  EXPECT_EQ(refused, 1) << "each takes two places: one to tell of it";
  must(fi_cntr_add(start, 1));
  EXPECT_TRUE(net.until([&] { return fi_cntr_read(target) == 2; }));
  // There is place again.
  must(fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &works[0]));
  EXPECT_TRUE(net.until([&] { return fi_cntr_read(target) == 3; }));
}

TEST(Cxi, WorkThatIsTakenBackLeavesItsPlace) {
  const Folder folder;
  if (!in_fresh_process({"FI_CXI_SOFT_TRIGGERED=20", folder.variable()})) return;
  Net net(2, with(FI_TRIGGER | FI_RMA));
  fid_cntr *const start = net[0].count(0), *const done = net[0].count(0);
  uint64_t window = 0, value = 9;
  net[1].expose(&window, sizeof window, FI_REMOTE_WRITE, 200);
  const iovec iov{&value, sizeof value};
  const fi_rma_iov target{0, sizeof window, 200};
  fi_op_rma write{.ep = net[0].ep, .msg = {}, .flags = FI_CXI_CNTR_WB};
  write.msg.msg_iov = &iov;
  write.msg.iov_count = 1;
  write.msg.rma_iov = &target;
  write.msg.rma_iov_count = 1;
  write.msg.addr = net.at(0, 1);
  fi_deferred_work work{};
  work.threshold = 1;
  work.triggering_cntr = start;
  work.completion_cntr = done;
  work.op_type = FI_OP_WRITE;
  work.op.rma = &write;
  for (int i = 0; i < 40; ++i) {
    must(fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &work));
    must(fi_control(net[0].domain.fid(), FI_CANCEL_WORK, &work));
  }
  must(fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &work));
  must(fi_cntr_add(start, 1));
  net.wait_count(done, 1);
  EXPECT_EQ(window, value);
}

// ---- FI_PROTO_CXI_RNR ----

// Two applications whose endpoints have the protocol.
class CxiRnr : public ::testing::Test {
 protected:
  void open() {
    Options options = with(FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_SOURCE);
    options.protocol = FI_PROTO_CXI_RNR;
    net = std::make_unique<Net>(2, options);
    uint64_t microseconds = 20'000'000;  // on a machine that has no time for us
    must(fi_set_val((*net)[0].ep.fid(), FI_OPT_CXI_SET_RNR_MAX_RETRY_TIME, &microseconds));
  }
  void send(std::vector<uint8_t> &out, uint64_t tag = 1) {
    net->post([&] {
      return fi_tsend((*net)[0].ep, out.data(), out.size(), nullptr, net->at(0, 1), tag, &out);
    });
  }
  std::unique_ptr<Net> net;
};

TEST_F(CxiRnr, IsOfferedToWhoAsks) {
  const Info usual = ask();
  for (const fi_info *info = usual.get(); info != nullptr; info = info->next)
    EXPECT_EQ(info->ep_attr->protocol, uint32_t(FI_PROTO_CXI));
  const Info info = ask([](fi_info &hints) { hints.ep_attr->protocol = FI_PROTO_CXI_RNR; });
  ASSERT_TRUE(info);
  EXPECT_EQ(tag_bits(*info), (uint64_t{1} << 40) - 1);
  EXPECT_EQ(info->tx_attr->inject_size, 0u);
  EXPECT_FALSE(info->tx_attr->msg_order & FI_ORDER_SAS);
}

TEST_F(CxiRnr, MessagesFindTheirReceives) {
  open();
  for (const size_t size : {0, 8, 1000, 100'000, 3'000'000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    const uint64_t tag = 0xabcdef0123 & ((uint64_t{1} << 40) - 1);
    must(fi_trecv((*net)[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, tag, 0, &in));
    send(out, tag);
    const Completion got = net->wait((*net)[1].rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.tag, tag);
    EXPECT_EQ(got.len, size);
    EXPECT_EQ(got.source, net->at(1, 0));
    EXPECT_EQ(in, out);
    EXPECT_EQ(net->wait((*net)[0].tx_cq).err, 0);
  }
  std::vector<uint8_t> out(8);
  EXPECT_EQ(
      fi_tsend((*net)[0].ep, out.data(), 8, nullptr, net->at(0, 1), uint64_t{1} << 40, nullptr),
      -FI_EINVAL);
  EXPECT_EQ(fi_inject((*net)[0].ep, out.data(), 8, net->at(0, 1)), -FI_EMSGSIZE);
}

TEST_F(CxiRnr, AMessageWaitsForItsReceive) {
  open();
  std::vector<uint8_t> out = pattern(5000, 1), in(5000);
  send(out);
  net->settle();
  EXPECT_FALSE(poll((*net)[0].tx_cq)) << "it has not arrived";
  must(fi_trecv((*net)[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  EXPECT_EQ(net->wait((*net)[1].rx_cq).len, 5000u);
  EXPECT_EQ(net->wait((*net)[0].tx_cq).err, 0);
  EXPECT_EQ(in, out);
}

TEST_F(CxiRnr, AMessageThatWaitsIsCanceled) {
  open();
  std::vector<uint8_t> out = pattern(5000, 1), other = pattern(100, 2), in(5000);
  fid_ep *const ep = (*net)[0].ep;
  send(out);
  net->settle();
  must(int(fi_cancel(&ep->fid, &out)));
  const Completion done = net->wait((*net)[0].tx_cq);
  EXPECT_EQ(done.err, FI_ECANCELED);
  EXPECT_EQ(done.context, &out);
  EXPECT_EQ(fi_cancel(&ep->fid, &out), -FI_ENOENT);
  // Nothing of it comes any more.
  must(fi_trecv((*net)[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  send(other);
  EXPECT_EQ(net->wait((*net)[1].rx_cq).len, other.size());
  EXPECT_EQ(net->wait((*net)[0].tx_cq).context, &other);
}

TEST_F(CxiRnr, AMessageThatFindsNoneFails) {
  open();
  uint64_t microseconds = 2000;
  must(fi_set_val((*net)[0].ep.fid(), FI_OPT_CXI_SET_RNR_MAX_RETRY_TIME, &microseconds));
  std::vector<uint8_t> out = pattern(100, 1);
  send(out);
  Completion done = net->wait((*net)[0].tx_cq);
  EXPECT_EQ(done.err, FI_EIO);
  EXPECT_EQ(done.context, &out);
  microseconds = 0;
  must(fi_set_val((*net)[0].ep.fid(), FI_OPT_CXI_SET_RNR_MAX_RETRY_TIME, &microseconds));
  send(out);
  done = net->wait((*net)[0].tx_cq);
  EXPECT_EQ(done.err, FI_EIO) << "at once";
  std::vector<uint8_t> in(100);
  must(fi_trecv((*net)[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  send(out);
  EXPECT_EQ(net->wait((*net)[1].rx_cq).context, &in);
  EXPECT_EQ(net->wait((*net)[0].tx_cq).err, 0);
  EXPECT_EQ(in, out);
}

TEST_F(CxiRnr, ManyGoIntoOneBuffer) {
  open();
  std::vector<uint8_t> buffer(64 * 1024), out = pattern(1000, 1);
  const iovec iov{buffer.data(), buffer.size()};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  message.context = &buffer;
  for (int i = 0; i < 40; ++i)
    net->post([&] {
      return fi_send((*net)[0].ep, out.data(), out.size(), nullptr, net->at(0, 1), nullptr);
    });
  net->settle();
  must(fi_recvmsg((*net)[1].ep, &message, FI_MULTI_RECV | FI_COMPLETION));
  for (int i = 0; i < 40; ++i) {
    const Completion got = net->wait((*net)[1].rx_cq);
    EXPECT_EQ(got.err, 0);
    ASSERT_EQ(got.len, 1000u);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), static_cast<uint8_t *>(got.buf)));
    EXPECT_EQ(net->wait((*net)[0].tx_cq).err, 0);
  }
}

// ---- several processes ----

TEST(CxiProcesses, AKilledOwnerLosesItsPid) {
  if (!in_fresh_process()) return;
  Options options;
  options.service = "44";
  Child child([&](int socket) {
    Node node(options);
    tell(socket, 1);
    hear(socket);
  });
  EXPECT_EQ(hear(child.socket()), 1u);
  EXPECT_THROW(Node taken(options), std::runtime_error);
  child.kill();
  Node mine(options);
  EXPECT_EQ(word_of(mine.name()) & 511, 44u);
}

// The target computes: nobody polls for it but the thread of its NIC.
TEST(CxiProcesses, ASleepingProcessIsReadWrittenAndCounted) {
#ifdef __SANITIZE_THREAD__
  if (std::getenv("FI_CXI_LIBCXI") != nullptr)
    GTEST_SKIP() << "a word of another process says that the double's thread has written";
#endif
  if (!in_fresh_process()) return;
  Child child([&](int socket) {
    uint64_t window[8] = {5};
    Node node(with(FI_RMA | FI_ATOMIC));
    node.expose(window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, kStandardKey);
    tell_text(socket, node.name());
    EXPECT_EQ(hear(socket), 2u);  // asleep until then
    node.progress();              // what the NIC's thread has written is seen
    EXPECT_EQ(window[0], 12u);
    EXPECT_EQ(window[1], 7u);
    tell(socket, 3);
    hear(socket);
  });
  const std::string name = hear_text(child.socket());
  Net net(1, with(FI_RMA | FI_ATOMIC));
  const fi_addr_t to = net[0].insert(name);
  uint64_t value = 7, read = 0;
  for (int i = 0; i < 3; ++i) {
    net.post([&] { return fi_write(net[0].ep, &value, 8, nullptr, to, 8, kStandardKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post([&] { return fi_read(net[0].ep, &read, 8, nullptr, to, 8, kStandardKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(read, 7u);
  }
  net.post([&] {
    return fi_atomic(net[0].ep, &value, 1, nullptr, to, 0, kStandardKey, FI_UINT64, FI_SUM,
                     nullptr);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  tell(child.socket(), 2);
  EXPECT_EQ(hear(child.socket()), 3u);
  tell(child.socket(), 4);
  child.join();
}

// What is sent to a process that was killed fails, and its messages do not hold others up.
TEST(CxiProcesses, AKilledPeerFailsWhatGoesToIt) {
  if (!in_fresh_process()) return;
  Child child([&](int socket) {
    Node node{Options()};
    tell_text(socket, node.name());
    hear(socket);
  });
  const std::string name = hear_text(child.socket());
  Net net(3);
  const fi_addr_t gone = net[0].insert(name);
  std::vector<uint8_t> out = pattern(100'000, 1);
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 8, nullptr, gone, 1, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0) << "its NIC has taken it";
  // Under way when the peer ends, whatever comes of it.
  const fi_addr_t same = net[2].insert(name);
  net.post([&] { return fi_tsend(net[2].ep, out.data(), out.size(), nullptr, same, 1, nullptr); });
  net.settle();
  child.kill();
  net.exchange(0, 1, 1000);
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 8, nullptr, gone, 1, nullptr); });
  const Completion done = net.wait(net[0].tx_cq);
  EXPECT_TRUE(done.err == FI_ENOTCONN || done.err == FI_EHOSTUNREACH) << done.err;
  net.exchange(1, 0, 100'000);
}

}  // namespace
}  // namespace weft::conformance::rdm
