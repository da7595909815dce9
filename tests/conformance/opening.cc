// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/opening.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <utility>

#include "tests/conformance/opening_changes.h"

namespace weft::conformance::opening {
namespace {

Info offered(const Options &options) {
  Info info = find_info(options, FI_SOURCE);
  if (!info) throw std::runtime_error("fi_getinfo offers no " + stack());
  return info;
}

int type_of(const fi_info &info) {
  int type;
  std::memcpy(&type, &info.ep_attr->type, sizeof type);
  return type;
}

// Whether fi_getinfo offers what the info says.
bool is_offered(const fi_info &info) {
  const Info hints(fi_dupinfo(&info));
  hints->handle = nullptr;
  hints->fabric_attr->fabric = nullptr;
  hints->domain_attr->domain = nullptr;
  hints->dest_addrlen = 0;
  std::free(std::exchange(hints->dest_addr, nullptr));
  Info list;
  const int rc = try_info(list, test_node(), nullptr, FI_SOURCE, hints.get());
  if (rc != 0) return false;
  for (const fi_info *one = list.get(); one != nullptr; one = one->next)
    if (one->fabric_attr->prov_name == stack()) return true;
  return false;
}

// An endpoint with all that it needs.
struct Objects {
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> cq;
  Handle<fid_ep> ep;

  // 0, or what the first call said that refused the info.
  int open(fi_info &info) {
    if (const int rc = fi_fabric(info.fabric_attr, fabric.out(), nullptr); rc != 0) return rc;
    if (const int rc = fi_domain(fabric, &info, domain.out(), nullptr); rc != 0) return rc;
    return fi_endpoint(domain, &info, ep.out(), nullptr);
  }
  int enable(const fi_info &info) {
    fi_cq_attr cq_attr{};
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    must(fi_ep_bind(ep, cq.fid(), FI_TRANSMIT | FI_RECV));
    if (type_of(info) == FI_EP_MSG) {
      fi_eq_attr eq_attr{};
      must(fi_eq_open(fabric, &eq_attr, eq.out(), nullptr));
      must(fi_ep_bind(ep, eq.fid(), 0));
    } else {
      fi_av_attr av_attr{};
      must(fi_av_open(domain, &av_attr, av.out(), nullptr));
      must(fi_ep_bind(ep, av.fid(), 0));
    }
    return fi_enable(ep);
  }
  // Its own address: messages have somewhere to go.
  fi_addr_t itself() {
    if (!av) return FI_ADDR_UNSPEC;
    const std::string name =
        address_of([&](void *buffer, size_t *size) { return fi_getname(ep.fid(), buffer, size); });
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    must(fi_av_insert(av, name.data(), 1, &to, 0, nullptr) == 1 ? 0 : -FI_EOTHER);
    return to;
  }
};

// ---- what an info says ----

uint64_t directions(uint64_t caps) {
  constexpr uint64_t kMessage = FI_SEND | FI_RECV;
  constexpr uint64_t kMemory = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & kMessage) == 0) caps |= kMessage;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kMemory) == 0) caps |= kMemory;
  return caps;
}

bool has(const fi_info &info, uint64_t own, uint64_t kind, uint64_t direction) {
  uint64_t caps = directions(info.caps);
  if (own != 0) caps &= directions(own);
  return (caps & kind) != 0 && (caps & direction) != 0;
}

// What was not asked for is refused, what was is not.
void check_caps(Objects &o, const fi_info &info, fi_addr_t to) {
  static char bytes[512];
  const uint64_t tx = info.tx_attr->caps, rx = info.rx_attr->caps;
  fid_ep *const ep = o.ep;
  const auto expect = [&](const char *call, ssize_t rc, uint64_t own, uint64_t kind,
                          uint64_t direction) {
    const bool refused = rc == -FI_EOPNOTSUPP || rc == -FI_ENOSYS;
    EXPECT_EQ(refused, !has(info, own, kind, direction)) << call << ": " << error_text(rc);
  };
  char *const at = bytes + 256;
  expect("fi_recv", fi_recv(ep, at, 8, nullptr, FI_ADDR_UNSPEC, nullptr), rx, FI_MSG, FI_RECV);
  expect("fi_send", fi_send(ep, at, 8, nullptr, to, nullptr), tx, FI_MSG, FI_SEND);
  if (type_of(info) == FI_EP_RDM) {
    expect("fi_trecv", fi_trecv(ep, at, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), rx, FI_TAGGED,
           FI_RECV);
    expect("fi_tsend", fi_tsend(ep, at, 8, nullptr, to, 1, nullptr), tx, FI_TAGGED, FI_SEND);
  }
  if (type_of(info) == FI_EP_DGRAM) return;
  expect("fi_write", fi_write(ep, at, 8, nullptr, to, 0, 1, nullptr), tx, FI_RMA, FI_WRITE);
  expect("fi_read", fi_read(ep, at, 8, nullptr, to, 0, 1, nullptr), tx, FI_RMA, FI_READ);
  if ((info.caps & FI_ATOMIC) == 0) return;
  size_t count = 0;
  if (fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count) != 0 || count == 0) return;
  expect("fi_atomic", fi_atomic(ep, at, 1, nullptr, to, 0, 1, FI_UINT64, FI_SUM, nullptr), tx,
         FI_ATOMIC, FI_WRITE);
}

void check_limits(Objects &o, const fi_info &info, fi_addr_t to) {
  const auto at_least = [&](int option, const char *name, size_t said) {
    size_t value = 0, length = sizeof value;
    if (fi_getopt(o.ep.fid(), FI_OPT_ENDPOINT, option, &value, &length) != 0) return;
    EXPECT_GE(value, said) << name;
  };
  at_least(FI_OPT_TX_SIZE, "tx_attr.size", info.tx_attr->size);
  at_least(FI_OPT_RX_SIZE, "rx_attr.size", info.rx_attr->size);
  // What was injected is a message.
  const size_t longest = info.ep_attr->max_msg_size;
  const size_t inject = std::min(info.tx_attr->inject_size, longest != 0 ? longest : SIZE_MAX);
  at_least(FI_OPT_INJECT_MSG_SIZE, "tx_attr.inject_size", inject);
  if (inject > 1 << 20 || type_of(info) == FI_EP_MSG) return;
  if (!has(info, info.tx_attr->caps, FI_MSG, FI_SEND)) return;
  const std::vector<uint8_t> out(inject);
  ssize_t rc;
  const Deadline deadline;
  do {
    rc = fi_inject(o.ep, out.data(), inject, to);
    fi_cq_err_entry ignored{};
    if (rc == -FI_EAGAIN && fi_cq_read(o.cq, nullptr, 0) == -FI_EAVAIL)
      fi_cq_readerr(o.cq, &ignored, 0);
  } while (rc == -FI_EAGAIN && !deadline.passed());
  EXPECT_EQ(rc, 0) << "fi_inject of " << inject << " bytes: " << error_text(rc);
}

// What was sent to itself arrives, so that fi_close has nothing to wait for.
void drain(Objects &o) {
  constexpr int kReads = 300;
  for (int i = 0; i < kReads; ++i) {
    fi_cq_err_entry ignored{};
    if (fi_cq_read(o.cq, nullptr, 0) == -FI_EAVAIL) fi_cq_readerr(o.cq, &ignored, 0);
    char entry[64];
    fi_cq_read(o.cq, entry, 1);
  }
}

// As many contexts as it says.
void check_contexts(Objects &o, fi_info &info) {
  constexpr size_t kMost = 64;
  const fi_ep_attr &ep = *info.ep_attr;
  const auto several = [](size_t count) { return count > 1 && count <= kMost; };
  if (type_of(info) != FI_EP_RDM || (!several(ep.tx_ctx_cnt) && !several(ep.rx_ctx_cnt))) return;
  if (ep.tx_ctx_cnt > kMost || ep.rx_ctx_cnt > kMost) return;
  Handle<fid_ep> scalable;
  ASSERT_EQ(fi_scalable_ep(o.domain, &info, scalable.out(), nullptr), 0);
  std::vector<Handle<fid_ep>> all;
  for (size_t i = 0; i < ep.tx_ctx_cnt; ++i) {
    all.emplace_back();
    EXPECT_EQ(fi_tx_context(scalable, int(i), nullptr, all.back().out(), nullptr), 0) << i;
  }
  for (size_t i = 0; i < ep.rx_ctx_cnt; ++i) {
    all.emplace_back();
    EXPECT_EQ(fi_rx_context(scalable, int(i), nullptr, all.back().out(), nullptr), 0) << i;
  }
}

void check_honoured(Objects &o, fi_info &info, int type) {
  if (type_of(info) != type) return;  // the endpoint may be of any type
  check_contexts(o, info);
  if (::testing::Test::HasFatalFailure()) return;
  const bool shares = info.ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT ||
                      info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
  // Such a thing only waits for a shared context; a device looks at buffers before they are posted.
  if (shares || is_of_a_device(static_cast<enum fi_ep_type>(type))) return;
  if (const int rc = o.enable(info); rc != 0) {
    ADD_FAILURE() << "fi_enable: " << error_text(rc);
    return;
  }
  const fi_addr_t to = o.itself();
  check_limits(o, info, to);
  if (info.caps != 0) check_caps(o, info, to);  // else all or none
  drain(o);
}

// ---- one changed info ----

void try_one(fi_info &info, int type) {
  const bool is_good = is_offered(info);
  Objects objects;
  const int rc = objects.open(info);
  if (rc == 0) {
    EXPECT_TRUE(is_good) << "it opens, and fi_getinfo refuses it";
    if (is_good) check_honoured(objects, info, type);
  } else {
    EXPECT_FALSE(is_good) << "fi_getinfo offers it, and it is refused: " << error_text(rc);
    EXPECT_TRUE(rc == -FI_EINVAL || rc == -FI_ENODATA) << error_text(rc);
  }
}

// The contexts of what was opened with an unchanged info.
void try_contexts(const Options &options, const Change &change, size_t value) {
  const Info plain = offered(options), changed(fi_dupinfo(plain.get()));
  change.apply(*changed, value);
  const bool is_good = is_offered(*changed);
  Objects o;
  must(o.open(*plain));
  if (change.of_transmits && plain->domain_attr->max_ep_stx_ctx != 0) {
    Handle<fid_stx> stx;
    const int rc = fi_stx_context(o.domain, changed->tx_attr, stx.out(), nullptr);
    EXPECT_FALSE(rc == 0 && !is_good) << "fi_stx_context";
  }
  if (change.of_receives && plain->domain_attr->max_ep_srx_ctx != 0) {
    Handle<fid_ep> srx;
    const int rc = fi_srx_context(o.domain, changed->rx_attr, srx.out(), nullptr);
    EXPECT_FALSE(rc == 0 && !is_good) << "fi_srx_context";
  }
  if (plain->domain_attr->max_ep_tx_ctx < 2 || type_of(*plain) != FI_EP_RDM) return;
  Handle<fid_ep> scalable, context;
  must(fi_scalable_ep(o.domain, plain.get(), scalable.out(), nullptr));
  const int rc = change.of_transmits
                     ? fi_tx_context(scalable, 0, changed->tx_attr, context.out(), nullptr)
                     : fi_rx_context(scalable, 0, changed->rx_attr, context.out(), nullptr);
  EXPECT_FALSE(rc == 0 && !is_good) << (change.of_transmits ? "fi_tx_context" : "fi_rx_context");
}

}  // namespace

void check_each_change(const Options &options) {
  for (const Change &change : changes()) {
    for (size_t value = 0; value < change.values; ++value) {
      SCOPED_TRACE(change.member + ", value " + std::to_string(value));
      const Info info = offered(options);
      const int type = type_of(*info);
      change.apply(*info, value);
      try_one(*info, type);
      if (change.of_transmits || change.of_receives) try_contexts(options, change, value);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void check_random_changes(const Options &options, unsigned seeds) {
  const char *const one = std::getenv("WEFT_TEST_SEED");
  const unsigned begin = one != nullptr ? unsigned(std::atoi(one)) : 1;
  for (unsigned seed = begin; seed < begin + (one != nullptr ? 1 : seeds); ++seed) {
    std::mt19937 random(seed);
    const Info info = offered(options);
    const int type = type_of(*info);
    std::string all = "WEFT_TEST_SEED=" + std::to_string(seed) + ":";
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      const Change &change = changes()[random() % changes().size()];
      const size_t value = random() % change.values;
      change.apply(*info, value);
      all += " " + change.member + "/" + std::to_string(value);
    }
    SCOPED_TRACE(all);
    try_one(*info, type);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void check_usual_changes(const Options &options) {
  const std::vector<std::pair<const char *, std::function<void(fi_info &)>>> all = {
      {"nothing", [](fi_info &) {}},
      {"default flags", [](fi_info &i) { i.tx_attr->op_flags = FI_COMPLETION; }},
      {"a smaller queue", [](fi_info &i) { i.tx_attr->size = i.rx_attr->size = 16; }},
      {"less to inject", [](fi_info &i) { i.tx_attr->inject_size /= 2; }},
      {"no order", [](fi_info &i) { i.tx_attr->msg_order = i.rx_attr->msg_order = 0; }},
      {"no capabilities of contexts", [](fi_info &i) { i.tx_attr->caps = i.rx_attr->caps = 0; }},
      {"messages only",
       [](fi_info &i) {
         i.caps = FI_MSG;
         i.tx_attr->caps = i.rx_attr->caps = 0;
       }},
      {"no attributes of contexts",
       [](fi_info &i) {
         std::free(std::exchange(i.tx_attr, nullptr));
         std::free(std::exchange(i.rx_attr, nullptr));
       }},
      {"no address",
       [](fi_info &i) {
         std::free(std::exchange(i.src_addr, nullptr));
         i.src_addrlen = 0;
       }},
      {"fewer calls at once", [](fi_info &i) { i.domain_attr->threading = FI_THREAD_DOMAIN; }},
      {"no name of the stack",
       [](fi_info &i) { std::free(std::exchange(i.fabric_attr->prov_name, nullptr)); }}};
  for (const auto &[what, change] : all) {
    SCOPED_TRACE(what);
    const Info info = offered(options);
    Objects o;
    must(fi_fabric(info->fabric_attr, o.fabric.out(), nullptr));
    change(*info);
    EXPECT_EQ(fi_domain(o.fabric, info.get(), o.domain.out(), nullptr), 0);
    if (!o.domain) continue;
    EXPECT_EQ(fi_endpoint(o.domain, info.get(), o.ep.out(), nullptr), 0);
  }
}

}  // namespace weft::conformance::opening
