// SPDX-License-Identifier: BSD-2-Clause
// Connected endpoints (FI_EP_MSG) under attack, over the double. Input: a byte with the choices of
// the application and of its device, a byte as the seed of the order in which devices work, then
// events:
//   * A liar connects, accepts and rejects with any private data, sends anything, and leaves.
//   * The application connects, accepts, posts, sends, cancels and closes.
//   * The connection manager tells anything of the liar's connections, in any order; completions
//     with the liar fail with any status; calls fail; devices break and go.
//   * An honest peer exchanges messages with the application all the time, and must not notice.
// application.h is what must hold. Completions with a wr_id that was never posted are left out: no
// peer can cause them, only a device that also could write anywhere.
//
//   verbs_endpoint_fuzz corpus_endpoint/
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "plugins/verbs/fuzz/application.h"

namespace weft::verbs::fuzz {
namespace {

using weft::fuzz::Input;
using Phase = Connection::Phase;

std::string_view text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

struct Kind {
  explicit Kind(Input &in) : bits(in.byte()), seed(in.byte()) {}
  Choices choices() const {
    return {.shares_receives = (bits & 1) != 0,
            .selective = (bits & 2) != 0,
            .two_queues = (bits & 4) != 0,
            .small_queues = size_t(bits & 8 ? 4 : 0)};
  }
  verbs_double::DeviceOptions device() const {
    verbs_double::DeviceOptions options{.addresses = {"10.99.0.1"}};
    options.features.keeps_completions = (bits & 16) == 0;
    options.features.last_receives = (bits & 32) == 0;
    options.features.reuses_numbers = (seed & 128) != 0;
    if (bits & 64) options.limits.max_sge_rd = 2;
    // Endpoints take places one by one.
    if (bits & 128 && !(bits & 1)) options.limits.max_cqe = 48;
    return options;
  }
  const uint8_t bits, seed;
};

Settings quick_settings() {
  Settings settings;
  settings.close_linger_ms = 0;
  settings.connect_timeout_ms = 0;
  settings.backlog = kBacklog;
  return settings;
}

class World {
 public:
  World(Input &in, const Kind &kind)
      : in_(in),
        node_({.progress = verbs_double::Progress::kByStep,
               .timers = verbs_double::Timers::kOnDemand,
               .seed = kind.seed},
              kind.device()),
        liars_device_(add_peers(node_.network)),
        us_(node_, quick_settings(), kind.choices(), "10.99.0.1"),
        friend_(node_, quick_settings(), {}, "10.99.2.1"),
        liar_(liars_address()) {
    Connection &ours = us_.open(us_.info());
    us_.connect(ours, friend_.name(), "honest");
    settle();
    Connection *const theirs = friend_.answer(0, "yes");
    settle();
    FUZZ_CHECK(theirs != nullptr && theirs->phase == Phase::kConnected);
    FUZZ_CHECK(ours.phase == Phase::kConnected);
    make_friends(ours, *theirs);
  }

  void run() {
    for (int i = 0; i < 400 && !in_.empty(); ++i) event(in_.byte());
    finish();
  }

 private:
  static verbs_double::Device &add_peers(verbs_double::Network &network) {
    network.add({.name = "dbl2", .addresses = {"10.99.2.1"}});  // of the honest peer
    return network.add({.name = "dbl1", .addresses = {"10.99.1.1"}});
  }
  static sdk::Address liars_address() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, "10.99.1.1", &address.sin_addr);
    return sdk::read_address(FI_SOCKADDR_IN, &address, sizeof address).value();
  }

  void event(uint8_t what) {
    if (pending_ != nullptr && pending_->phase == Phase::kEnded) pending_ = nullptr;
    switch (what % 24) {
      case 0:
      case 1:
        for (int n = in_.byte() % 32; n != 0 && node_.network.step(); --n) {
        }
        return;
      case 2:
        node_.network.run();
        return;
      case 3:
        us_.read_events(in_.byte() % 4 + 1);
        return;
      case 4:
        us_.read_completions(in_.byte() % 16 + 1);
        return;
      case 5:
        return liar_.run();
      case 6: {
        const uint8_t how = in_.byte();
        return liar_.call(us_.name(), data(56), how);
      }
      case 7: {
        const uint8_t how = in_.byte();
        return liar_.answer(data(196), how);
      }
      case 8:
        return liar_.refuse(data(148));
      case 9: {
        const uint8_t which = in_.byte();
        return liar_.leave(which, in_.byte());
      }
      case 10:
      case 11:
        return liar_.send(in_, us_.shown());
      case 12:
        return liar_.receive(in_);
      case 13:
      case 14:
        return talk(in_.byte());
      case 15:
        return befriend();
      case 16:
        return forge();
      case 17:
        return break_something();
      case 18:
        return fail_a_call();
      default:
        return act(what);
    }
  }

  std::string_view data(size_t most) { return text_of(in_.take(in_.byte() % (most + 1))); }

  // ---- the application, and connections that are the liar's or nobody's

  Connection *pick() {
    auto all = us_.connections();
    std::erase_if(all, [](const Connection *one) { return one->other != nullptr; });
    const uint8_t which = in_.byte();
    return all.empty() ? nullptr : all[which % all.size()];
  }

  void act(uint8_t what) {
    if (what % 24 == 19) return answer();
    if (what % 24 == 20) return connect(what);
    Connection *const over = pick();
    if (over == nullptr) return;
    switch (what % 24) {
      case 21:
        return us_.receive(over, in_);
      case 22:
        return us_.transfer(*over, in_, remote());
      default:
        break;
    }
    switch (in_.byte() % 4) {
      case 0:
        return us_.shut_down(*over);
      case 1:
        return us_.close(*over);
      default:
        return us_.cancel(in_);
    }
  }

  Shown remote() {
    const uint8_t how = in_.byte();
    Shown target = liar_.memory();
    if (how & 0x80) target.address += in_.number(2);
    if (how & 0x40) target.key = in_.number(4);
    return target;
  }

  void connect(uint8_t what) {
    if (us_.connections().size() >= 8) return;
    Connection &over = us_.open(us_.info());
    if (what & 0x80) us_.receive(&over, in_);
    us_.connect(over, liar_.name(), data(80));
  }

  void answer() {
    const bool is_friend = pending_ != nullptr && us_.is_first_from(friend_.name());
    const uint8_t how = is_friend ? 0 : in_.byte();
    if (!is_friend && us_.connections().size() >= 8 && how % 4 < 2) return;
    Connection *const over = us_.answer(how, is_friend ? "yes" : data(80));
    if (is_friend && over != nullptr) make_friends(*over, *std::exchange(pending_, nullptr));
  }

  // ---- the honest peer

  static void make_friends(Connection &ours, Connection &theirs) {
    ours.other = &theirs;
    theirs.other = &ours;
  }

  void befriend() {
    if (befriended_ || excused_) return;
    befriended_ = true;
    pending_ = &friend_.open(friend_.info());
    friend_.connect(*pending_, us_.name(), "honest");
  }

  void talk(uint8_t how) {
    friend_.read_events(4);
    friend_.read_completions(16);
    Application &side = how & 1 ? us_ : friend_;
    for (Connection *const over : side.connections()) {
      if (over->other == nullptr || over->phase != Phase::kConnected) continue;
      if (how & 2) side.receive_whole(*over);
      if (how & 4 && over->other->phase == Phase::kConnected) side.transfer(*over, in_, {});
    }
  }

  // ---- faults

  void forge() {
    constexpr rdma_cm_event_type kTypes[] = {
        RDMA_CM_EVENT_ADDR_ERROR,   RDMA_CM_EVENT_ROUTE_ERROR,    RDMA_CM_EVENT_CONNECT_ERROR,
        RDMA_CM_EVENT_UNREACHABLE,  RDMA_CM_EVENT_REJECTED,       RDMA_CM_EVENT_DISCONNECTED,
        RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_ADDR_CHANGE,
        RDMA_CM_EVENT_TIMEWAIT_EXIT};
    const uint8_t type = in_.byte(), which = in_.byte(), status = in_.byte();
    const std::string_view text = data(255);
    node_.device.tell(liars_device_, which,
                      {.type = kTypes[type % std::size(kTypes)],
                       .status = int(status) - 128,
                       .data = {text.begin(), text.end()}});
  }

  void break_something() {
    const uint8_t what = in_.byte();
    Connection *const over = pick();
    const uint32_t number = over != nullptr ? Application::number_of(*over) : 0;
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        if (number != 0)
          node_.network.fail({.status = ibv_wc_status(1 + in_.byte() % IBV_WC_TM_RNDV_INCOMPLETE),
                              .receive = (what & 8) != 0,
                              .at = 1u + (what >> 4),
                              .qp_num = number});
        return;
      case 3:
        try {
          if (number != 0) node_.device.break_queue_pair(number);
        } catch (const std::invalid_argument &) {  // it is gone
        }
        return;
      case 4:
        return liars_device_.vanish((what & 8) != 0);
      case 5:
        return liars_device_.set_port_state(what & 8 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
      case 6:
        if (pending_ == nullptr && !is_connecting(us_) && !is_connecting(friend_))
          node_.network.expire_timers();
        return;
      default:
        if (what & 0x80) return lose(what);
        return liars_device_.remove();
    }
  }

  static bool is_connecting(const Application &side) {
    return std::ranges::any_of(side.connections(), [](const Connection *one) {
      return one->other != nullptr && one->phase == Phase::kConnecting;
    });
  }

  // The application's own device is at fault, and with it all that the honest peer can hope for.
  void lose(uint8_t what) {
    excused_ = true;
    us_.excuse();
    friend_.excuse();
    if (what & 8) return us_.break_queue(node_.device);
    node_.device.remove();
  }

  void fail_a_call() {
    constexpr std::string_view kCalls[] = {
        "ibv_post_send", "ibv_post_recv",  "rdma_create_qp",     "rdma_connect",     "rdma_accept",
        "ibv_modify_qp", "rdma_create_id", "rdma_resolve_route", "rdma_resolve_addr"};
    const uint8_t which = in_.byte(), what = in_.byte();
    if (pending_ != nullptr || is_connecting(us_)) return;
    node_.network.fail({.call = kCalls[which % std::size(kCalls)],
                        .error = what & 0x80 ? ENOMEM : EIO,
                        .at = 1u + (which >> 6)});
    if (what & 0x40) {
      us_.read_events(4);
    } else {
      act(uint8_t(19 + what % 5));
    }
    node_.network.clear_faults();
  }

  // ---- the end

  void settle() {
    for (int i = 0; i < 6; ++i) {
      node_.network.run();
      liar_.run();
      for (Application *const side : {&us_, &friend_}) {
        side->read_events(1000);
        FUZZ_CHECK(!side->read_completions(10'000) || !side->read_completions(1),
                   "completions without end");
      }
    }
  }

  void finish() {
    node_.network.clear_faults();
    settle();
    node_.network.expire_timers();
    settle();
    us_.check_settled();
    friend_.check_settled();
    for (Connection *const one : us_.connections())
      if (one->other == nullptr) us_.close(*one);
    for (int i = 0; i < 2000 && !excused_ && !is_delivered(); ++i) {
      for (Application *const side : {&us_, &friend_})
        for (Connection *const over : side->connections())
          if (over->other != nullptr && over->arrived != over->other->sent.size())
            side->receive_whole(*over);
      settle();
    }
    FUZZ_CHECK(excused_ || is_delivered(), "honest messages are lost");
  }
  bool is_delivered() const { return us_.is_delivered() && friend_.is_delivered(); }

  Input &in_;
  TestNode node_;
  verbs_double::Device &liars_device_;
  Application us_, friend_;
  Liar liar_;
  Connection *pending_ = nullptr;  // of the honest peer, until we have accepted it
  bool befriended_ = false, excused_ = false;
};

}  // namespace
}  // namespace weft::verbs::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::verbs::fuzz;
  static const bool ready = [] {
    int argc = 1;
    char name[] = "verbs_endpoint_fuzz", *argv[] = {name, nullptr};
    testing::InitGoogleTest(&argc, argv);
    GTEST_FLAG_SET(break_on_failure, true);  // of the harness
    return true;
  }();
  if (!ready || size > 4096) return -1;
  Input in(data, size);
  const Kind kind(in);
  World world(in, kind);
  world.run();
  return 0;
}
