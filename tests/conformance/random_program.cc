// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/random_program.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "tests/conformance/device_memory.h"
#include "tests/conformance/random_calls.h"

namespace weft::conformance {

using State = RandomSlot::State;

namespace {

constexpr size_t kLives = 3;  // of the peer that is killed
constexpr size_t kSlots = 3;  // at a time

std::vector<std::unique_ptr<PeerProcess>> make_processes(const Options &options) {
  std::vector<std::unique_ptr<PeerProcess>> processes;
  for (size_t i = 0; i < 1 + kLives; ++i)
    processes.push_back(std::make_unique<PeerProcess>(options));
  return processes;
}

}  // namespace

RandomProgram::RandomProgram(const Options &options, unsigned seed)
    : random_(seed),
      type_(options.type),
      processes_(make_processes(options)),  // before this one uses the library
      options_(choose(all_that_is_offered(options))),
      calls_(seed % 2 == 0 ? Calls::Signals::kOfProcess : Calls::Signals::kOfThread),
      model_(options.type == FI_EP_MSG,
             options.type == FI_EP_DGRAM && is_of_a_device(options.type)),
      app_(options_) {}

// Sizes, defaults and modes at random; what is not offered is left out.
Options RandomProgram::choose(const Options &options) {
  Options chosen = options;
  const auto try_out = [&](const auto &change) {
    Options changed = chosen;
    change(changed);
    if (!find_info(changed)) return false;
    chosen = changed;
    return true;
  };
  const auto any_of = [&](std::initializer_list<size_t> sizes) {
    return sizes.begin()[below(sizes.size())];
  };
  has_tags_ = options.caps & FI_TAGGED;
  has_rma_ = options.caps & FI_RMA;
  has_atomics_ = options.caps & FI_ATOMIC;
  is_managed_ =
      type_ != FI_EP_DGRAM && try_out([](Options &o) { o.resource_mgmt = FI_RM_ENABLED; });
  has_delivery_ = type_ != FI_EP_DGRAM && find_info([&] {
                    Options with_level = chosen;
                    with_level.tx_op_flags = FI_DELIVERY_COMPLETE;
                    return with_level;
                  }());
  if (has_delivery_ && one_in(3)) chosen.tx_op_flags = FI_DELIVERY_COMPLETE;
  try_out([&](Options &o) { o.progress = one_in(2) ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL; });
  try_out([&](Options &o) { o.threading = one_in(2) ? FI_THREAD_DOMAIN : FI_THREAD_SAFE; });
  const size_t tx_size = any_of({0, 4, 8, 16}), rx_size = any_of({0, 4, 8, 16});
  if (is_managed_) {
    try_out([&](Options &o) { o.tx_size = tx_size; });
    try_out([&](Options &o) { o.rx_size = rx_size; });
    chosen.tx_cq.size = any_of({0, 1, 7, 8, 9});
    chosen.rx_cq.size = any_of({0, 1, 7, 8, 9});
    window_ = std::min<size_t>((tx_size != 0 ? tx_size : 8) - 1 + below(3), 20);
    receives_ = std::max<size_t>((rx_size != 0 ? rx_size : 8) - 1 + below(3), 1);
  } else {
    window_ = 3;
    receives_ = 2 * window_ + 2;
  }
  chosen.one_cq = one_in(3);
  chosen.eq.wait_obj = one_in(2) ? FI_WAIT_UNSPEC : FI_WAIT_FD;
  static constexpr enum fi_wait_obj kWaits[] = {FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD,
                                                FI_WAIT_MUTEX_COND, FI_WAIT_SET};
  tx_wait_ = kWaits[below(std::size(kWaits))];
  rx_wait_ = kWaits[below(std::size(kWaits))];
  return chosen;
}

// ---- the program ----

void RandomProgram::open() {
  const Info info = find_info(options_, type_ == FI_EP_MSG ? 0 : FI_SOURCE);
  if (!info) throw std::runtime_error("fi_getinfo takes back what it has offered");
  calls_("fi_fabric and fi_domain", [&] { return app_.open_fabric(info.get()), 0; });
  has_counters_ = info->domain_attr->cntr_cnt != 0;
  has_data_ = info->domain_attr->cq_data_size != 0 && !is_of_a_device(type_);
  if (type_ != FI_EP_MSG) {
    fi_av_attr attr{};
    attr.type =
        info->domain_attr->av_type != FI_AV_UNSPEC ? info->domain_attr->av_type : FI_AV_TABLE;
    must(calls_("fi_av_open",
                [&] { return fi_av_open(app_.domain, &attr, app_.av.out(), nullptr); }));
  }
  fi_wait_attr attr{};
  attr.wait_obj = FI_WAIT_UNSPEC;
  if (tx_wait_ == FI_WAIT_SET || rx_wait_ == FI_WAIT_SET)
    calls_("fi_wait_open", [&] { return fi_wait_open(app_.fabric, &attr, wait_set_.out()); });
  open_queue(tx_cq_, tx_wait_, options_.tx_cq.size);
  if (options_.one_cq) {
    rx_wait_ = tx_wait_;
  } else {
    open_queue(rx_cq_, rx_wait_, options_.rx_cq.size);
  }
}

void RandomProgram::open_queue(Handle<fid_cq> &cq, enum fi_wait_obj &wait, size_t size) {
  fi_cq_attr attr = options_.tx_cq;
  attr.size = size;
  attr.wait_obj = wait;
  attr.wait_set = wait == FI_WAIT_SET ? wait_set_.get() : nullptr;
  const auto open = [&] { return fi_cq_open(app_.domain, &attr, cq.out(), nullptr); };
  if (calls_("fi_cq_open", open, int64_t(size), wait) == 0) return;
  attr.wait_obj = wait = FI_WAIT_NONE;  // which every domain has
  attr.wait_set = nullptr;
  must(calls_("fi_cq_open", open, int64_t(size), wait));
}

void RandomProgram::open_slot() {
  size_t open = 0;
  for (const auto &slot : model_.slots) {
    if (slot->state == State::kEnded && one_in(2)) close_slot(*slot);
    open += slot->state != State::kClosed;
  }
  if (open >= kSlots) return;
  Host *to = nullptr;
  if (type_ == FI_EP_MSG) {
    to = &model_.hosts[below(2)];
    if (!to->is_alive) to = &model_.hosts[0];
  }
  model_.slots.push_back(std::make_unique<Slot>());
  Slot &slot = *model_.slots.back();
  slot.number = unsigned(model_.slots.size());
  slot.to = to;
  slot.life = to != nullptr ? to->life : 0;
  must(calls_(
      "fi_endpoint",
      [&] { return fi_endpoint(app_.domain, app_.info.get(), slot.ep.out(), &slot); },
      slot.number));
  const auto bind = [&](struct fid *fid, uint64_t flags) {
    must(calls_(
        "fi_ep_bind", [&] { return fi_ep_bind(slot.ep, fid, flags); }, slot.number));
  };
  if (app_.eq) bind(app_.eq.fid(), 0);
  if (app_.av) bind(app_.av.fid(), 0);
  bind(tx_cq_.fid(), FI_TRANSMIT | (rx_cq_ ? 0 : FI_RECV));
  if (rx_cq_) bind(rx_cq_.fid(), FI_RECV);
  if (has_counters_) {
    fi_cntr_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    must(calls_("fi_cntr_open",
                [&] { return fi_cntr_open(app_.domain, &attr, slot.counter.out(), nullptr); }));
    bind(slot.counter.fid(), FI_SEND | (has_rma_ ? FI_READ | FI_WRITE : 0));
  }
  const ssize_t rc = calls_(
      "fi_enable", [&] { return fi_enable(slot.ep); }, slot.number);
  if (is_no_room(rc)) return close_slot(slot);
  must(rc);
  for (size_t i = 0; i < receives_; ++i) {
    receive(slot, false);
    if (has_tags_) receive(slot, true);
  }
  if (to != nullptr) {
    slot.state = State::kConnecting;
    const uint32_t number = slot.number;
    must(calls_(
        "fi_connect",
        [&] { return fi_connect(slot.ep, to->where.address.data(), &number, sizeof number); },
        slot.number, to->index));
    return;
  }
  const std::string name = address_of([&](void *buffer, size_t *size) {
    return calls_("fi_getname", [&] { return fi_getname(slot.ep.fid(), buffer, size); });
  });
  for (Host &host : model_.hosts)
    if (host.is_alive) host.process->insert(slot.number, name);
}

// With all that it has under way.
void RandomProgram::close_slot(Slot &slot) {
  if (slot.state == State::kClosed) return;
  close("fi_close of a region", slot.region);
  model_.abandon(slot);
  close("fi_close of an endpoint", slot.ep);
  close("fi_close of a counter", slot.counter);
  if (slot.to != nullptr) return;
  for (Host &host : model_.hosts)
    if (host.is_alive) host.process->remove(slot.number);
}

void RandomProgram::meet(Host &host) {
  PeerProcess *const process = host.index == 0 ? processes_[0].get() : processes_[lives_++].get();
  host.life = host.index == 0 ? 0 : lives_ - 1;
  process->start();
  const Introduction where = process->meet();
  if (where.address.empty()) {
    if (host.index == 0) throw std::runtime_error("no room for the peer that lives");
    host.process = nullptr;
    return;
  }
  model_.born(host, process, where);
  if (type_ == FI_EP_MSG) return;
  const std::string &address = host.where.address;
  const char *text = address.c_str();
  const void *what =
      app_.info->addr_format == FI_ADDR_STR ? static_cast<const void *>(&text) : text;
  const int n = calls_(
      "fi_av_insert", [&] { return fi_av_insert(app_.av, what, 1, &host.at, 0, nullptr); },
      host.index);
  EXPECT_EQ(n, 1);
  for (const auto &slot : model_.slots) {
    if (slot->state != State::kOpen) continue;
    process->insert(slot->number, address_of([&](void *buffer, size_t *size) {
                      return fi_getname(slot->ep.fid(), buffer, size);
                    }));
  }
}

void RandomProgram::kill() {
  Host &host = model_.hosts[1];
  if (!host.is_alive) return;
  host.process->kill();
  model_.killed(host);
}

// Its successor has another address. What was under way toward it has ended before.
void RandomProgram::revive() {
  Host &host = model_.hosts[1];
  if (host.is_alive || lives_ > kLives) return;
  until("the end of operations toward a killed peer",
        [&] { return model_.toward_the_dead() == 0 && model_.connections_to_end() == 0; });
  if (::testing::Test::HasFailure()) return;
  if (host.process != nullptr && app_.av) {
    fi_addr_t entry = host.at;
    const int rc = calls_("fi_av_remove", [&] { return fi_av_remove(app_.av, &entry, 1, 0); });
    EXPECT_EQ(rc, 0) << error_text(rc);
  }
  meet(host);
}

void RandomProgram::change_vector() {
  if (!app_.av) return;
  const std::string nobody = address_at(options_, 1 + unsigned(below(1000)));
  const char *text = nobody.c_str();
  const void *what =
      app_.info->addr_format == FI_ADDR_STR ? static_cast<const void *>(&text) : text;
  fi_addr_t at = FI_ADDR_NOTAVAIL;
  const int n =
      calls_("fi_av_insert", [&] { return fi_av_insert(app_.av, what, 1, &at, 0, nullptr); });
  if (n != 1) return;  // it may be refused at once
  char buffer[256] = {};
  size_t size = sizeof buffer;
  EXPECT_EQ(calls_("fi_av_lookup", [&] { return fi_av_lookup(app_.av, at, buffer, &size); }), 0);
  EXPECT_EQ(calls_("fi_av_remove", [&] { return fi_av_remove(app_.av, &at, 1, 0); }), 0);
}

// Opens and closes what nothing is bound to, or what is told to the peers by nobody.
void RandomProgram::change_objects() {
  switch (below(5)) {
    case 0:
      return change_vector();
    case 1: {
      Handle<fid_cq> cq;
      enum fi_wait_obj wait = tx_wait_;
      open_queue(cq, wait, 1 + below(3));
      return close("fi_close of a queue", cq);
    }
    case 2: {
      if (!has_counters_) return;
      Handle<fid_cntr> counter;
      fi_cntr_attr attr{};
      attr.wait_obj = FI_WAIT_FD;
      must(calls_("fi_cntr_open",
                  [&] { return fi_cntr_open(app_.domain, &attr, counter.out(), nullptr); }));
      EXPECT_EQ(calls_("fi_cntr_add", [&] { return fi_cntr_add(counter, 3); }), 0);
      EXPECT_EQ(calls_("fi_cntr_read", [&] { return fi_cntr_read(counter); }), 3u);
      return close("fi_close of a counter", counter);
    }
    case 3: {
      Slot *const slot = some_slot();
      if (!has_rma_ || slot == nullptr) return;
      close("fi_close of a region", slot->region);
      must(calls_("fi_mr_reg", [&] {
        return fi_mr_reg(app_.domain, memory_.data(), 1 + below(memory_.size()),
                         FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 100 + slot->number, 0,
                         slot->region.out(), nullptr);
      }));
      if ((demands(type_).mr_mode & FI_MR_ENDPOINT) == 0 || one_in(3)) return;
      EXPECT_EQ(calls_("fi_mr_bind", [&] { return fi_mr_bind(slot->region, slot->ep.fid(), 0); }),
                0);
      const ssize_t rc = calls_("fi_mr_enable", [&] { return fi_mr_enable(slot->region); });
      EXPECT_TRUE(rc == 0 || is_no_room(rc)) << error_text(rc);
      return;
    }
    default: {
      Info list;
      EXPECT_EQ(calls_("fi_getinfo",
                       [&] {
                         return try_info(list, test_node(), nullptr, FI_SOURCE,
                                         make_hints(options_).get());
                       }),
                0);
    }
  }
}

void RandomProgram::step() {
  for (const auto &process : processes_) process->advance();
  Slot *const slot = some_slot();
  Host *const host = slot != nullptr ? some_host(*slot) : nullptr;
  const size_t choice = below(100);
  if (choice < 30) {
    for (size_t i = 1 + below(window_ + 1); host != nullptr && i > 0 && send(*slot, *host); --i) {
    }
  } else if (choice < 40) {
    for (size_t i = 1 + below(4); host != nullptr && i > 0 && access(*slot, *host); --i) {
    }
  } else if (choice < 55) {
    for (const bool is_tagged : {false, true})
      for (size_t i = 0; slot != nullptr && (!is_tagged || has_tags_) && i < receives_ &&
                         slot->receives[is_tagged] < receives_;
           ++i)
        receive(*slot, is_tagged);
  } else if (choice < 72) {
    for (size_t i = below(6); i > 0; --i) {
      read_event();
      read(one_in(2) || !rx_cq_ ? tx_cq_ : rx_cq_);
    }
  } else if (choice < 80) {
    block();
  } else if (choice < 83) {
    open_slot();
  } else if (choice == 83 && slot != nullptr) {
    close_slot(*slot);
  } else if (choice == 84) {
    kill();
  } else if (choice < 87) {
    revive();
  } else if (choice < 91) {
    change_objects();
  } else if (choice < 94 && host != nullptr) {
    refuse(*slot, *host);
  } else if (choice < 97) {
    cancel();
  } else {
    static constexpr int kIntervals[] = {0, 100, 300, 1000, 5000};  // us
    calls_.interrupt_every(std::chrono::microseconds(kIntervals[below(std::size(kIntervals))]));
  }
}

void RandomProgram::run() {
  open();
  for (Host &host : model_.hosts) meet(host);
  constexpr size_t kSteps = 400;
  for (size_t i = 0; i < kSteps && !::testing::Test::HasFailure(); ++i) step();
  if (!::testing::Test::HasFailure()) finish();
  EXPECT_GT(numbers_, 0u) << "nothing was sent";
  calls_.interrupt_every(std::chrono::microseconds(0));
  close_all();
}

// What is under way ends, and the living peer has noticed nothing.
void RandomProgram::finish() {
  for (const auto &slot : model_.slots)
    if (slot->state == State::kEnded) close_slot(*slot);
  open_slot();
  until("the end of all operations", [&] {
    return model_.under_way() == 0 && model_.messages_to_come() == 0 &&
           model_.connections_to_end() == 0;
  });
  until("a last message", [&] {
    size_t open = 0;
    for (const auto &slot : model_.slots) {
      if (slot->state == State::kConnecting) return false;
      if (slot->state != State::kOpen || !slot->is_at(model_.hosts[0])) continue;
      if (slot->has_last) continue;
      slot->has_last = send(*slot, model_.hosts[0]);
      open += !slot->has_last;
    }
    return open == 0;
  });
  for (const auto &slot : model_.slots) {
    if (slot->state != State::kOpen || !slot->is_at(model_.hosts[0])) continue;
    while (access(*slot, model_.hosts[0]) && !::testing::Test::HasFailure()) {
    }
  }
  until("the end of the last operations",
        [&] { return model_.under_way() == 0 && model_.messages_to_come() == 0; });
  until("the count of all transmits", [&] {
    for (const auto &slot : model_.slots) {
      if (!slot->counter || slot->state == State::kClosed) continue;
      const uint64_t good = calls_("fi_cntr_read", [&] { return fi_cntr_read(slot->counter); });
      const uint64_t bad =
          calls_("fi_cntr_readerr", [&] { return fi_cntr_readerr(slot->counter); });
      // An injected message counts when it is taken, and as an error when it is lost with its peer.
      EXPECT_LE(good, slot->transmits) << "counted twice, endpoint " << slot->number;
      EXPECT_LE(good + bad, slot->transmits + slot->injected + slot->lost)
          << "counted twice, endpoint " << slot->number;
      if (good + bad < slot->transmits) return false;
    }
    return true;
  });
  for (int i = 0; i < 50; ++i) read_all();  // a second completion would come now
}

void RandomProgram::close_all() {
  const bool leaves_first = one_in(2) && !::testing::Test::HasFailure();
  if (leaves_first) {
    processes_[0]->leave();
    model_.hosts[0].is_alive = false;
  }
  for (const auto &slot : model_.slots) close_slot(*slot);
  if (!leaves_first && !::testing::Test::HasFailure()) processes_[0]->leave();
  close("fi_close of a queue", rx_cq_);
  close("fi_close of a queue", tx_cq_);
  close("fi_close of a wait set", wait_set_);
  close("fi_close of an address vector", app_.av);
  close("fi_close of a domain", app_.domain);
  close("fi_close of an event queue", app_.eq);
  close("fi_close of a fabric", app_.fabric);
}

// ---- for the tests ----

void make_random_calls(const Options &options, unsigned seed) {
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(seed));
  RandomProgram(options, seed).run();
}

std::vector<unsigned> seeds_of_random_calls() {
  if (const char *seed = std::getenv("WEFT_TEST_SEED")) return {unsigned(std::atoi(seed))};
  const char *count = std::getenv("WEFT_TEST_SEEDS");
  std::vector<unsigned> seeds(count != nullptr ? size_t(std::atoi(count)) : 4);
  for (size_t i = 0; i < seeds.size(); ++i) seeds[i] = unsigned(i) + 1;
  return seeds;
}

bool in_process_of_random_calls() {
  // Nothing tells of the end of a peer whose device is in this process.
  if (has_devices_inside()) return in_fresh_process();
  return in_fresh_process({"FI_OFI_RXD_PEER_TIMEOUT_MS=120000"});
}

}  // namespace weft::conformance
