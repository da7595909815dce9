// SPDX-License-Identifier: BSD-2-Clause
// Objects in any order (fi_endpoint.3, fi_cq.3, fi_cntr.3, fi_mr.3): queues, counters and regions
// that are opened, bound and closed early or late, and what is counted where. The random tests say
// how to repeat a seed (WEFT_TEST_SEED).
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kAllEvents[] = {FI_SEND,  FI_RECV,        FI_READ,
                                   FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
constexpr uint64_t kEverything = FI_MSG | FI_TAGGED | FI_RMA | FI_RMA_EVENT;

Options with(uint64_t caps) {
  Options options;
  options.caps = caps;
  return options;
}
bool has_atomics() {
  static const bool has = unconnected::offers(Options(), kEverything | FI_ATOMIC);
  return has;
}
uint64_t all_caps() {
  return kEverything | (has_atomics() ? FI_ATOMIC : 0);
}

// One 64-bit word of a peer's region is changed by each of these, all in the same thread.
struct Peers {
  explicit Peers(uint64_t caps = all_caps()) : net(2, with(caps)) {
    mr = net[1].expose(memory.data(), memory.size() * sizeof memory[0],
                       FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
  }
  uint64_t at() { return net[1].base_of(memory.data()); }
  fi_addr_t to() const { return net.at(0, 1); }
  void done() { EXPECT_EQ(net.wait(net[0].tx_cq).err, 0); }
  void write() {
    net.post([&] { return fi_write(net[0].ep, &word, 8, nullptr, to(), at(), key(), &word); });
    done();
  }
  void read() {
    net.post([&] { return fi_read(net[0].ep, &word, 8, nullptr, to(), at(), key(), &word); });
    done();
  }
  void atomic() {
    net.post([&] {
      return fi_atomic(net[0].ep, &one, 1, nullptr, to(), at(), key(), FI_UINT64, FI_SUM, &word);
    });
    done();
  }
  void fetch() {
    net.post([&] {
      return fi_fetch_atomic(net[0].ep, &one, 1, nullptr, &word, nullptr, to(), at(), key(),
                             FI_UINT64, FI_SUM, &word);
    });
    done();
  }
  void compare() {
    net.post([&] {
      return fi_compare_atomic(net[0].ep, &one, 1, nullptr, &word, nullptr, &swapped, nullptr, to(),
                               at(), key(), FI_UINT64, FI_CSWAP_NE, &word);
    });
    done();
  }
  uint64_t key() { return fi_mr_key(mr); }

  std::vector<uint64_t> memory = std::vector<uint64_t>(4);
  uint64_t word = 5, one = 1, swapped = 0;
  Net net;
  fid_mr *mr = nullptr;
};

TEST(Bind, CountersMayFollowAfterEnable) {
  UNCONNECTED_NEEDS(Options(), kEverything, "FI_RMA_EVENT");
  Peers p;
  p.net.exchange(0, 1);
  p.write();
  p.read();
  // Operations before the bind are not counted.
  std::array<fid_cntr *, 6> near{}, far{};
  for (size_t i = 0; i < 6; ++i) {
    near[i] = p.net[0].count(0);
    far[i] = p.net[1].count(0);
    EXPECT_EQ(fi_ep_bind(p.net[0].ep, &near[i]->fid, kAllEvents[i]), 0) << i;
    EXPECT_EQ(fi_ep_bind(p.net[1].ep, &far[i]->fid, kAllEvents[i]), 0) << i;
    EXPECT_EQ(fi_ep_bind(p.net[1].ep, &near[i]->fid, kAllEvents[i]), -FI_EDOMAIN)
        << "of another domain";
    EXPECT_EQ(fi_ep_bind(p.net[1].ep, &far[i]->fid, kAllEvents[i]), -FI_EBUSY) << "one for each";
    EXPECT_EQ(fi_close(&far[i]->fid), -FI_EBUSY) << "in use";
  }
  p.net.exchange(0, 1);
  p.net.exchange(0, 1, 8);
  for (int i = 0; i < 3; ++i) p.write();
  for (int i = 0; i < 4; ++i) p.read();
  const uint64_t expect_near[] = {2, 0, 4, 3, 0, 0}, expect_far[] = {0, 2, 0, 0, 4, 3};
  p.net.settle();
  for (size_t i = 0; i < 6; ++i) {
    p.net.wait_count(near[i], expect_near[i]);
    p.net.wait_count(far[i], expect_far[i]);
    EXPECT_EQ(fi_cntr_read(near[i]), expect_near[i]) << i;
    EXPECT_EQ(fi_cntr_read(far[i]), expect_far[i]) << i;
  }
}

TEST(Bind, QueuesMayFollowIfThereAreCounters) {
  covers("life cycle");
  Options options;
  Net net(0, options);
  const Info info = find_info(options, FI_SOURCE);
  Application app(options);
  app.open_fabric(info.get());
  fi_av_attr av{};
  must(fi_av_open(app.domain, &av, app.av.out(), nullptr));
  app.open_queues();
  must(fi_endpoint(app.domain, app.info.get(), app.ep.out(), nullptr));
  must(fi_ep_bind(app.ep, app.av.fid(), 0));
  fid_cntr *sent = app.count(FI_SEND), *received = app.count(FI_RECV);
  must(fi_enable(app.ep));
  const std::string name = app.name();
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(insert_address(app.av, name, &self, 0, nullptr), 1);
  char in[8] = {};
  const auto exchange = [&](uint64_t times) {
    must(fi_recv(app.ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, in));
    const Deadline deadline;
    ssize_t rc = -FI_EAGAIN;
    while (rc == -FI_EAGAIN && !deadline.passed()) {
      rc = fi_send(app.ep, "hello", 6, nullptr, self, &self);
      app.progress();
    }
    must(rc);
    while ((fi_cntr_read(sent) != times || fi_cntr_read(received) != times) && !deadline.passed())
      app.progress();
    EXPECT_STREQ(in, "hello");
  };
  exchange(1);
  EXPECT_EQ(fi_ep_bind(app.ep, app.av.fid(), 0), -FI_EOPBADSTATE);
  must(fi_ep_bind(app.ep, app.tx_cq.fid(), FI_TRANSMIT));
  must(fi_ep_bind(app.ep, app.rx_cq.fid(), FI_RECV));
  EXPECT_EQ(fi_ep_bind(app.ep, app.rx_cq.fid(), FI_RECV), -FI_EBUSY);
  EXPECT_FALSE(poll_cq(app.tx_cq)) << "of what was before";
  EXPECT_FALSE(poll_cq(app.rx_cq));
  exchange(2);
  const auto out = poll_cq(app.tx_cq), arrived = poll_cq(app.rx_cq);
  ASSERT_TRUE(out && arrived);
  EXPECT_EQ(out->context, &self);
  EXPECT_EQ(arrived->context, in);
}

// ---- counters of regions ----

TEST(Bind, ARegionsCounterCountsRemoteWrites) {
  UNCONNECTED_NEEDS(Options(), kEverything, "FI_RMA_EVENT");
  Peers p;
  // A counter for all regions, one for this region alone, one for another region.
  std::vector<uint64_t> elsewhere(4);
  fid_mr *other = p.net[1].expose(elsewhere.data(), 32, FI_REMOTE_READ | FI_REMOTE_WRITE, 2);
  fid_cntr *all = p.net[1].count(FI_REMOTE_WRITE), *fetched = p.net[1].count(FI_REMOTE_READ),
           *changed = p.net[1].count(0), *of_other = p.net[1].count(0);
  must(fi_mr_bind(p.mr, &changed->fid, FI_REMOTE_WRITE));
  must(fi_mr_bind(other, &of_other->fid, FI_REMOTE_WRITE));
  EXPECT_EQ(fi_close(&changed->fid), -FI_EBUSY);
  uint64_t expected = 0, written = 0, read = 0;
  for (int round = 0; round < 3; ++round) {
    p.write();
    ++expected, ++written;
    p.read();  // changes nothing
    ++read;
    p.net.wait_count(changed, expected);
    if (!has_atomics()) continue;
    p.atomic();
    ++written;
    p.net.wait_count(changed, ++expected);
    // They change memory (fi_mr.3); the endpoint counts them as reads (fi_endpoint.3).
    p.fetch();
    p.net.wait_count(changed, ++expected);
    p.compare();
    p.net.wait_count(changed, ++expected);
    read += 2;
  }
  p.net.exchange(0, 1, 100'000);
  p.net.settle();
  EXPECT_EQ(fi_cntr_read(changed), expected);
  // A NIC raises the endpoint's counter with what changes memory (fi_cxi.7, "Counters").
  EXPECT_EQ(fi_cntr_read(all), is_matched_by_a_nic(FI_EP_RDM) ? expected : written);
  EXPECT_EQ(fi_cntr_read(fetched), read);
  EXPECT_EQ(fi_cntr_read(of_other), 0u);
  EXPECT_EQ(fi_cntr_readerr(changed), 0u);
}

// A thread blocks on the counter of a region that a peer writes to, as one-sided libraries do.
TEST(Bind, ARegionsCounterWakesABlockedThread) {
  UNCONNECTED_NEEDS(Options(), kEverything, "FI_RMA_EVENT");
  Peers p;
  fi_cntr_attr attr{};
  attr.wait_obj = FI_WAIT_UNSPEC;
  fid_cntr *changed = p.net[1].count(0, attr);
  must(fi_mr_bind(p.mr, &changed->fid, FI_REMOTE_WRITE));
  const std::vector<void (Peers::*)()> changes =
      has_atomics() ? std::vector{&Peers::write, &Peers::atomic, &Peers::fetch}
                    : std::vector{&Peers::write};
  uint64_t count = 0;
  for (int round = 0; round < 20; ++round) {
    p.net.set_asleep(1, true);
    ++count;
    std::thread peer([&] { (p.*changes[size_t(round) % changes.size()])(); });
    EXPECT_EQ(fi_cntr_wait(changed, count, int(patience().count())), 0) << round;
    // The answer that the peer waits for may need progress here.
    std::atomic<bool> over{false};
    std::thread here([&] {
      while (!over) fi_cntr_read(changed);
    });
    peer.join();
    over = true;
    here.join();
    p.net.set_asleep(1, false);
  }
}

// ---- any order ----

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }
  bool one_in(size_t n) { return below(n) == 0; }

 private:
  std::mt19937 engine_;
};

// Steps with what has to come before; carried out in a random order that respects it.
class Plan {
 public:
  size_t add(std::function<void()> step, std::vector<size_t> after = {}) {
    steps_.push_back({std::move(step), std::move(after), false});
    return steps_.size() - 1;
  }
  void run(Random &random) {
    for (;;) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < steps_.size(); ++i)
        if (!steps_[i].done &&
            std::ranges::all_of(steps_[i].after, [this](size_t j) { return steps_[j].done; }))
          ready.push_back(i);
      if (ready.empty()) return;
      Step &step = steps_[ready[random.below(ready.size())]];
      step.run();
      step.done = true;
    }
  }

 private:
  struct Step {
    std::function<void()> run;
    std::vector<size_t> after;
    bool done;
  };
  std::vector<Step> steps_;
};

constexpr size_t kEvents = std::size(kAllEvents);
enum Event { kSend, kRecv, kRead, kWrite, kRemoteRead, kRemoteWrite };
constexpr uint64_t kRegionKey = 3;

struct Side {
  // Adds the steps up to fi_enable, and those that may come before or after it.
  void open(Plan &plan, Random &random, const Info &found);
  void close(Random &random);
  bool sees(Event event) const {
    return (event == kRecv ? rx_bound : tx_bound && !selective) || cntrs[event].bound;
  }
  void happens(Event event) {
    if (cntrs[event].bound) ++cntrs[event].expected;
  }
  void changes(bool is_written = true) {
    if (is_written) happens(kRemoteWrite);
    if (region_bound) ++region_expected;
  }
  void progress() {
    // Whichever object is read: all of them make progress.
    fi_cntr_read(region_cntr);
  }

  struct Counter {
    Handle<fid_cntr> cntr;
    bool bound = false;
    uint64_t expected = 0;
  };
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> tx, rx;
  std::array<Counter, kEvents> cntrs;
  Handle<fid_cntr> region_cntr;
  Handle<fid_ep> srx, ep;
  Handle<fid_mr> mr;
  Info info;
  bool tx_bound = false, rx_bound = false, selective = false, region_bound = false;
  bool region_open = false;  // peers may reach it
  uint64_t region_expected = 0;
  size_t has_domain = 0, has_ep = 0, enabled = 0;  // steps
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  std::vector<uint64_t> memory = std::vector<uint64_t>(16384);

 private:
  using Steps = std::vector<size_t>;
  void add_cntrs(Plan &plan, std::array<size_t, kEvents> &binds);
  void add_queues(Plan &plan, Random &random, const std::array<size_t, kEvents> &binds,
                  Steps &first);
  void add_region(Plan &plan);
};

void Side::open(Plan &plan, Random &random, const Info &found) {
  info.reset(fi_dupinfo(found.get()));
  const bool shared = random.one_in(4) && info->domain_attr->max_ep_srx_ctx != 0;
  if (shared) info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  const size_t has_fabric =
      plan.add([this] { must(fi_fabric(info->fabric_attr, fabric.out(), nullptr)); });
  has_domain = plan.add([this] { must(fi_domain(fabric, info.get(), domain.out(), nullptr)); },
                        {has_fabric});
  const size_t has_eq = plan.add(
      [this] {
        fi_eq_attr attr = Options::eq_attr();
        must(fi_eq_open(fabric, &attr, eq.out(), nullptr));
      },
      {has_fabric});
  const size_t has_av = plan.add(
      [this] {
        fi_av_attr attr{};
        attr.type = FI_AV_TABLE;
        must(fi_av_open(domain, &attr, av.out(), nullptr));
      },
      {has_domain});
  has_ep =
      plan.add([this] { must(fi_endpoint(domain, info.get(), ep.out(), nullptr)); }, {has_domain});
  Steps first{has_ep};  // before fi_enable
  first.push_back(plan.add([this] { must(fi_ep_bind(ep, av.fid(), 0)); }, {has_ep, has_av}));
  if (shared) {
    const size_t has_srx = plan.add(
        [this] { must(fi_srx_context(domain, info->rx_attr, srx.out(), nullptr)); }, {has_domain});
    first.push_back(plan.add([this] { must(fi_ep_bind(ep, srx.fid(), 0)); }, {has_ep, has_srx}));
  }
  selective = random.one_in(4);
  std::array<size_t, kEvents> binds{};
  add_cntrs(plan, binds);
  add_queues(plan, random, binds, first);
  plan.add([this] { EXPECT_EQ(fi_ep_bind(ep, eq.fid(), 0), 0); }, {has_ep, has_eq});
  enabled = plan.add([this] { must(fi_enable(ep)); }, first);
  add_region(plan);
}

void Side::add_cntrs(Plan &plan, std::array<size_t, kEvents> &binds) {
  for (size_t i = 0; i < kEvents; ++i) {
    const size_t has = plan.add(
        [this, i] {
          fi_cntr_attr attr{};
          must(fi_cntr_open(domain, &attr, cntrs[i].cntr.out(), nullptr));
        },
        {has_domain});
    binds[i] = plan.add(
        [this, i] {
          const int rc = fi_ep_bind(ep, cntrs[i].cntr.fid(), kAllEvents[i]);
          EXPECT_EQ(rc, 0) << "counter " << i << ": " << error_text(rc);
          cntrs[i].bound = true;
        },
        {has_ep, has});
  }
}

// For each direction a queue or a counter is bound before fi_enable; the others at any time.
void Side::add_queues(Plan &plan, Random &random, const std::array<size_t, kEvents> &binds,
                      Steps &first) {
  for (const bool transmit : {true, false}) {
    const size_t has = plan.add(
        [this, transmit] {
          fi_cq_attr attr = Options::cq_attr();
          must(fi_cq_open(domain, &attr, transmit ? tx.out() : rx.out(), nullptr));
        },
        {has_domain});
    const size_t bind = plan.add(
        [this, transmit] {
          const int rc = transmit
                             ? fi_ep_bind(ep, tx.fid(),
                                          FI_TRANSMIT | (selective ? FI_SELECTIVE_COMPLETION : 0))
                             : fi_ep_bind(ep, rx.fid(), FI_RECV);
          EXPECT_EQ(rc, 0) << (transmit ? "transmit" : "receive") << " queue: " << error_text(rc);
          (transmit ? tx_bound : rx_bound) = true;
        },
        {has_ep, has});
    first.push_back(random.one_in(2) ? bind : binds[transmit ? kSend : kRecv]);
  }
}

// The region and its counter belong to the domain; they do not depend on the endpoint, unless the
// stack demands FI_MR_ENDPOINT.
void Side::add_region(Plan &plan) {
  const bool needs_ep = demands(FI_EP_RDM).mr_mode & FI_MR_ENDPOINT;
  const size_t has_mr = plan.add(
      [this, needs_ep] {
        must(fi_mr_reg(domain, memory.data(), memory.size() * 8, FI_REMOTE_READ | FI_REMOTE_WRITE,
                       0, kRegionKey, 0, mr.out(), nullptr));
        region_open = !needs_ep;
      },
      {has_domain});
  if (needs_ep)
    plan.add(
        [this] {
          must(fi_mr_bind(mr, ep.fid(), 0));
          must(fi_mr_enable(mr));
          region_open = true;
        },
        {has_mr, enabled});
  const size_t has_counter = plan.add(
      [this] {
        fi_cntr_attr attr{};
        must(fi_cntr_open(domain, &attr, region_cntr.out(), nullptr));
      },
      {has_domain});
  plan.add(
      [this] {
        EXPECT_EQ(fi_mr_bind(mr, region_cntr.fid(), FI_REMOTE_WRITE), 0);
        region_bound = true;
      },
      {has_mr, has_counter});
}

// An object closes before those that it uses.
void Side::close(Random &random) {
  Plan plan;
  const size_t ep_gone = plan.add([this] { ep.reset(); });
  const size_t mr_gone = plan.add([this] { mr.reset(); });
  std::vector<size_t> all{ep_gone, mr_gone};
  const auto gone = [&](auto &handle, std::vector<size_t> after) {
    all.push_back(plan.add([&handle] { handle.reset(); }, std::move(after)));
  };
  for (Counter &counter : cntrs) gone(counter.cntr, {ep_gone});
  gone(region_cntr, {mr_gone});
  gone(av, {ep_gone});
  gone(tx, {ep_gone});
  gone(rx, {ep_gone});
  gone(srx, {ep_gone});
  const size_t eq_gone = plan.add([this] { eq.reset(); }, {ep_gone});
  const size_t domain_gone = plan.add([this] { domain.reset(); }, all);
  plan.add([this] { fabric.reset(); }, {eq_gone, domain_gone});
  plan.run(random);
}

class AnyOrder {
 public:
  explicit AnyOrder(unsigned seed) : random_(seed) {}
  void run();

 private:
  bool until(const std::function<bool()> &predicate) {
    const Deadline deadline;
    while (!predicate()) {
      if (deadline.passed()) return false;
      for (Side &side : sides_) side.progress();
    }
    return true;
  }
  void post(const std::function<ssize_t()> &operation) {
    ssize_t rc = 0;
    ASSERT_TRUE(until([&] { return (rc = operation()) != -FI_EAGAIN; })) << "-FI_EAGAIN for ever";
    ASSERT_EQ(rc, 0) << error_text(rc);
  }
  void expect(Side &side, bool transmit, void *context, size_t length);
  void exchange();
  void message(Side &from, Side &to);
  void access(Side &from, Side &to);
  void check(const char *when);

  Random random_;
  Side sides_[2];
};

void AnyOrder::expect(Side &side, bool transmit, void *context, size_t length) {
  if (!(transmit ? side.tx_bound && !side.selective : side.rx_bound)) return;
  fid_cq *cq = transmit ? side.tx : side.rx;
  std::optional<Done> done;
  ASSERT_TRUE(until([&] { return (done = poll_cq(cq)).has_value(); }))
      << (transmit ? "transmit" : "receive") << " completion";
  EXPECT_EQ(done->err, 0) << fi_strerror(done->err);
  EXPECT_EQ(done->context, context);
  if (!transmit) {
    EXPECT_EQ(done->len, length);
  }
}

void AnyOrder::check(const char *when) {
  for (Side &side : sides_) {
    const size_t which = size_t(&side - sides_);
    for (size_t i = 0; i < kEvents; ++i) {
      Side::Counter &counter = side.cntrs[i];
      if (!counter.bound) continue;
      EXPECT_TRUE(until([&] { return fi_cntr_read(counter.cntr) >= counter.expected; }))
          << when << ": side " << which << ", counter " << i;
      EXPECT_EQ(fi_cntr_read(counter.cntr), counter.expected)
          << when << ": side " << which << ", counter " << i;
      EXPECT_EQ(fi_cntr_readerr(counter.cntr), 0u);
    }
    if (side.region_bound) {
      EXPECT_TRUE(until([&] { return fi_cntr_read(side.region_cntr) >= side.region_expected; }))
          << when << ": side " << which << ", the region's";
      EXPECT_EQ(fi_cntr_read(side.region_cntr), side.region_expected)
          << when << ": side " << which << ", the region's";
    }
    for (const auto &[cq, bound] :
         {std::pair{side.tx.get(), side.tx_bound}, {side.rx.get(), side.rx_bound}}) {
      EXPECT_FALSE(bound && poll_cq(cq)) << when << ": a completion too many";
    }
  }
}

void AnyOrder::message(Side &from, Side &to) {
  constexpr size_t kSizes[] = {0, 8, 64, 1000, 16384, 16385, 70'000, 300'000};
  if (!from.sees(kSend) || !to.sees(kRecv)) return;
  const size_t size = kSizes[random_.below(std::size(kSizes))];
  std::vector<uint8_t> out = pattern(size, unsigned(size)), in(size);
  const bool tagged = random_.one_in(2);
  const auto receive = [&] {
    post([&] {
      fid_ep *ep = to.srx ? to.srx.get() : to.ep.get();
      return tagged ? fi_trecv(ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 7, 0, &in)
                    : fi_recv(ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in);
    });
  };
  const bool early = random_.one_in(2);
  if (early) receive();
  post([&] {
    return tagged ? fi_tsend(from.ep, out.data(), size, nullptr, from.peer, 7, &out)
                  : fi_send(from.ep, out.data(), size, nullptr, from.peer, &out);
  });
  if (!early) receive();
  expect(to, false, &in, size);
  expect(from, true, &out, size);
  from.happens(kSend);
  to.happens(kRecv);
  // Without a queue the counters show it.
  check("a message");
  EXPECT_EQ(in, out);
}

void AnyOrder::access(Side &from, Side &to) {
  const size_t words = random_.one_in(3) ? 1 + random_.below(to.memory.size()) : 1;
  std::vector<uint64_t> mine(words, random_.below(1000)), result(words);
  const uint64_t at = to.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR
                          ? reinterpret_cast<uint64_t>(to.memory.data())
                          : 0;
  const uint64_t key = fi_mr_key(to.mr);
  const size_t kind = random_.below(has_atomics() ? 4 : 2);
  const Event local = kind % 2 == 0 ? kWrite : kRead;
  if (!from.sees(local)) return;
  const std::vector<uint64_t> before = to.memory;
  switch (kind) {
    case 0:
      post([&] {
        return fi_write(from.ep, mine.data(), words * 8, nullptr, from.peer, at, key, &mine);
      });
      to.changes();
      break;
    case 1:
      post([&] {
        return fi_read(from.ep, mine.data(), words * 8, nullptr, from.peer, at, key, &mine);
      });
      to.happens(kRemoteRead);
      break;
    case 2:
      post([&] {
        return fi_atomic(from.ep, mine.data(), 1, nullptr, from.peer, at, key, FI_UINT64, FI_SUM,
                         &mine);
      });
      to.changes();
      break;
    default:
      post([&] {
        return fi_fetch_atomic(from.ep, mine.data(), 1, nullptr, result.data(), nullptr, from.peer,
                               at, key, FI_UINT64, FI_SUM, &mine);
      });
      to.happens(kRemoteRead);
      // A NIC raises the endpoint's counter with what changes memory (fi_cxi.7, "Counters").
      to.changes(is_matched_by_a_nic(FI_EP_RDM));
  }
  expect(from, true, &mine, words * 8);
  from.happens(local);
  check(kind == 0 ? "a write" : kind == 1 ? "a read" : kind == 2 ? "an atomic" : "a fetch");
  const auto holds = [&] {
    switch (kind) {
      case 0:
        return until([&] { return std::equal(mine.begin(), mine.end(), to.memory.begin()); });
      case 1:
        return std::equal(mine.begin(), mine.end(), before.begin());
      default:
        return until([&] { return to.memory[0] == before[0] + mine[0]; }) &&
               (kind == 2 || result[0] == before[0]);
    }
  };
  EXPECT_TRUE(holds());
}

void AnyOrder::exchange() {
  Side &from = sides_[random_.below(2)];
  Side &to = &from == sides_ ? sides_[1] : sides_[0];
  if (random_.one_in(2)) {
    message(from, to);
  } else if (to.region_open) {
    access(from, to);
  }
}

void AnyOrder::run() {
  const Info found = find_info(with(all_caps()), FI_SOURCE);
  ASSERT_TRUE(found);
  Plan plan;
  for (Side &side : sides_) side.open(plan, random_, found);
  std::vector<size_t> enabled{sides_[0].enabled, sides_[1].enabled};
  const size_t known = plan.add(
      [&] {
        for (Side *side : {&sides_[0], &sides_[1]}) {
          Side &peer = side == &sides_[0] ? sides_[1] : sides_[0];
          const std::string name = address_of(
              [&](char *buffer, size_t *size) { return fi_getname(peer.ep.fid(), buffer, size); });
          ASSERT_EQ(insert_address(side->av, name, &side->peer, 0, nullptr), 1);
        }
      },
      enabled);
  // The objects for progress come first. There is traffic between the other steps.
  for (int i = 0; i < 12; ++i)
    plan.add(
        [&] {
          if (sides_[0].region_cntr && sides_[1].region_cntr) exchange();
        },
        {known});
  plan.run(random_);
  for (int i = 0; i < 6; ++i) exchange();
  check("the end");
  const bool first = random_.one_in(2);
  sides_[first ? 0 : 1].close(random_);
  sides_[first ? 1 : 0].close(random_);
}

TEST(Bind, AnyOrder) {
  covers("life cycle");
  UNCONNECTED_NEEDS(Options(), kEverything, "FI_RMA_EVENT");
  const char *one = getenv("WEFT_TEST_SEED");
  const unsigned begin = one != nullptr ? unsigned(atoi(one)) : 1;
  const unsigned end = one != nullptr ? begin : 60;
  for (unsigned seed = begin; seed <= end; ++seed) {
    SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(seed));
    AnyOrder(seed).run();
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
