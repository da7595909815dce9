// SPDX-License-Identifier: BSD-2-Clause
// A stateful fuzz target for the whole protocol. It plays three parties. The endpoint under test:
// its application posts, sends, reads, writes, cancels, peeks, and changes its address vector. An
// attacker with three addresses of its own (attacker.h): it connects under any name, answers
// or not, and sends any bytes in any order. An honest peer, which the attack must not affect. The
// carrier between them (carrier.cc) moves bytes between real memory.
//
// For every input:
// * each operation and each receive ends once, and the carrier leaves its memory alone afterwards;
// * a successful receive has all bytes of its message, and no other memory is written;
// * a saved message keeps the source of its sender;
// * unexpected messages occupy no more memory than the limit;
// * under FI_BUFFERED_RECV, of either of them or both, the application is told of each message
//   once, in its order, and what it was told of stays until it claims or discards it;
// * all messages between the endpoint and the honest peer arrive once, unchanged and in order;
// * no memory, buffer or registration is left over.
//
// An input that begins with 255 has a thief and a relay as well (actors.h). Then no message of the
// thief is reported under the name of the honest peer after that one's first message, none of the
// endpoint or of the honest peer under the name of the other, and what must arrive does so when the
// two have left. WEFT_FUZZ_TALLY=1 prints what both did.
#include "plugins/rxm/protocol/fuzz/actors.h"
#include "plugins/rxm/protocol/fuzz/attacker.h"

namespace weft::rxm {
namespace {

class Play {
 public:
  explicit Play(fuzz::Input &input) : input_(input) {
    uint8_t how = input.byte();
    world_.acted = world_.relay_listens = how == 255;
    const uint8_t actors = world_.acted ? input.byte() : uint8_t{0};
    if (world_.acted) how = input.byte();
    relay_.set_host(actors);
    settings_.eager_limit = 512;
    settings_.receive_count = kSharedBuffers;
    settings_.sar_limit = 2048;
    settings_.rendezvous_write = (how & 1) != 0;
    settings_.credits = (how & 2) != 0;
    if (settings_.credits) settings_.receive_count = kOwnBuffers;
    settings_.max_connections = (how & 4) != 0 ? 2 : 0;
    settings_.tx_size = 24;
    settings_.max_strangers = world_.acted ? 1 : 3;
    settings_.max_controls = 160;
    settings_.max_segments = 6;
    settings_.unexpected_limit = 20000;
    settings_.owed_limit = 4096;
    settings_.connect_timeout_ns = 5'000'000'000;
    settings_.bare = (how & 128) != 0;
    world_.low = (how & 8) != 0;
    world_.limited = settings_.max_connections != 0;
    // A sender that writes cannot write twice, so nothing of its message is read ahead.
    buffered_.limit = (how & 64) != 0 ? 1500 : 500;
    buffered_.min = settings_.rendezvous_write ? 0 : (how & 128) != 0 ? 400 : 64;
    buffered_.on = honest_is_buffered_ = (how & 48) == 32;
    buffered_.on |= (how & 16) != 0;
    endpoint_ = start(kEndpoint);
    world_.endpoint = endpoint_.get();
    endpoint_->insert(kHonest, 0);
    endpoint_->insert(kAttacker, 1);
    endpoint_->insert(kAttacker + 1, 2);
    if (world_.acted) endpoint_->insert(kRelay, kByRelay);
    start_honest();
    if ((actors & 4) != 0) restart_honest((actors & 8) != 0);
  }
  ~Play() {
    endpoint_.reset();
    honest_.reset();
  }

  void run() {
    const size_t kMost = 2000;
    for (size_t i = 0; i < kMost && !input_.empty(); ++i) act();
    if ((input_.byte() & 7) == 7) return;  // closed with operations in flight
    finish();
  }

 private:
  std::unique_ptr<Side> start(uint16_t port) {
    Settings settings = settings_;
    settings.process = ++processes_;
    Side::Buffered buffered = buffered_;
    if (port == kHonest) {
      buffered.on = honest_is_buffered_;
      settings.bare &= processes_ % 2 == 0;  // not every second one that is started
    }
    return std::make_unique<Side>(world_, port, settings, buffered);
  }
  // The endpoint and the honest peer exchange messages before the attack begins.
  void start_honest() {
    honest_ = start(kHonest);
    honest_->base = uint64_t(processes_) * 100'000;
    world_.honest = honest_.get();
    honest_->insert(kEndpoint, 0);
    if (world_.acted) honest_->insert(kRelay, kByRelay);
    if (thief_.was_called()) {
      world_.late = true;
      honest_->promised = SIZE_MAX;
    }
    honest_->peer = endpoint_.get();
    endpoint_->peer = honest_.get();
    talk(*honest_, 10, 1);
    if (endpoint_->restarted) return;
    talk(*endpoint_, 10, 1);
    settle();
  }
  // The honest peer dies; the next call starts it again at the same address. `silent`: its death is
  // not reported.
  void restart_honest(bool silent) {
    if (honest_ == nullptr && world_.thief_listens) return;  // it has the port
    if (honest_ == nullptr) return start_honest();
    std::vector<Link *> ends;
    for (Link &link : world_.links)
      if (link.side == honest_.get() && link.other != nullptr && link.other->owner != nullptr)
        ends.push_back(&link);
    world_.honest = endpoint_->peer = nullptr;
    honest_.reset();
    endpoint_->restarted = true;
    endpoint_->promised = SIZE_MAX;
    if (silent) return;
    for (Link *link : ends) end_link(*link, false);
  }
  // A message between the endpoint and the honest peer, with its receive.
  void talk(Side &from, size_t length, uint8_t how) {
    Side &to = from.peer != nullptr ? *from.peer : *endpoint_;
    if (from.full() || to.full()) return;
    if ((how & 32) != 0) from.send(0, length, how);
    to.post(0, (how & 1) != 0, (how & 64) != 0 ? length / 2 : 5000, false, (how & 128) != 0);
    if ((how & 32) == 0) from.send(0, length, how);
  }
  void poll() {
    endpoint_->core().poll();
    endpoint_->reap();
    const Core &core = endpoint_->core();
    FUZZ_CHECK(core.strangers() <= settings_.max_strangers + endpoint_->removed,
               "too many strangers");
    // Each peer may exceed the limit by one packet, the one after which it is held.
    FUZZ_CHECK(
        core.unexpected_bytes() <= settings_.unexpected_limit +
                                       core.objects() * (sizeof(RxMessage) + settings_.eager_limit),
        "unexpected messages exceed their limit");
    endpoint_->expect_named();
    if (honest_ == nullptr) return;
    honest_->core().poll();
    honest_->reap();
  }
  void pass(uint64_t ns) {
    world_.now += ns;
    endpoint_->pass_time(ns);
    if (honest_ != nullptr) honest_->pass_time(ns);
  }
  // Runs until no event is left.
  void settle() {
    for (int idle = 0, turns = 0; idle < 3 && turns < 100'000; ++turns) {
      poll();
      if (world_.step()) {
        idle = 0;
        continue;
      }
      uint64_t at = endpoint_->deadline();
      if (const uint64_t other = honest_ != nullptr ? honest_->deadline() : 0; other != 0)
        at = at != 0 ? std::min(at, other) : other;
      pass(at > world_.now ? at - world_.now : 1000);
      if (at == 0) ++idle;
    }
  }

  // The applications claim or discard all that they were told of.
  void settle_told() {
    for (int i = 0; i < 1000; ++i) {
      settle();
      if (endpoint_->told() + honest_->told() == 0) return;
      for (Side *side : {endpoint_.get(), honest_.get()})
        while (side->settle_told(0, 5000, ++claims_ % 3 == 0, false)) {
        }
    }
  }

  void act() {
    world_.now += 1000;
    const uint8_t what = input_.byte();
    if (world_.acted && what >= 168) return act_as_others(what);
    switch (what % 24) {
      case 0:
      case 1:
        for (int n = what / 24 + 1; n > 0 && world_.step(); --n) poll();
        return;
      case 2:
      default:
        return poll();
      case 3: {
        // Not so much that operations between the honest sides time out.
        const uint64_t ns = std::min<uint64_t>(input_.byte() * UINT64_C(1'000'000), time_left_);
        time_left_ -= ns;
        return pass(ns);
      }
      case 4:
        return attacker_.connect();
      case 5:
        return attacker_.answer_call();
      case 6:
      case 7:
      case 8:
        return attacker_.say();
      case 9:
        return attacker_.say_segment();
      case 10:
        return attacker_.answer_read();
      case 11:
        return attacker_.hang_up();
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
      case 18:
        return use(what);
      case 17:
        return attacker_.change_names();
      case 20:
        return attacker_.reach();
      case 23:
        return attacker_.say_bare();
      case 22: {
        Side *side = (what & 32) != 0 ? honest_.get() : endpoint_.get();
        if (side == nullptr || !side->is_buffered()) return poll();
        const uint8_t how = input_.byte();
        if (how >= 248) return side->settle_nothing(how);
        const size_t length = some_length(input_);
        side->settle_told(how / 4, length, (how & 1) != 0, (how & 2) != 0);
        return;
      }
      case 21:
        return restart_honest((what & 32) != 0);
      case 19: {
        const uint8_t how = input_.byte();
        world_.mute = (how & 1) != 0;
        world_.scarce = (how & 2) != 0;
        world_.stutter = how / 4 % 4 != 0 ? 2 + how / 16 : 0;
        return;
      }
    }
  }

  // An action of the thief or of the relay.
  void act_as_others(uint8_t what) {
    switch (what % 12) {
      case 0:
        thief_.listen();
        break;
      case 1:
        thief_.stop_listening();
        break;
      case 2:
        thief_.answer();
        break;
      case 3:
        thief_.claim();
        break;
      case 4:
      case 5:
        thief_.speak();
        break;
      case 6:
        thief_.hang_up();
        break;
      case 7:
        relay_.accept();
        break;
      case 8: {  // the endpoint or the honest peer, to the relay
        const uint8_t how = input_.byte();
        Side *from = (how & 128) != 0 ? honest_.get() : endpoint_.get();
        if (from == nullptr || from->full()) return;
        for (fi_addr_t to = 0; to < from->names(); ++to)
          if (from->name(to) == kByRelay) return from->send(to, some_length(input_), how & 63);
        return;
      }
      case 9:
        relay_.hang_up();
        break;
      default:
        relay_.pass();
        break;
    }
    thief_.look();
    relay_.look();
  }

  // An action of the application of the endpoint or of the honest peer.
  void use(uint8_t what) {
    switch (what % 24) {
      case 12:
        if (honest_ == nullptr && world_.acted && !endpoint_->full())
          return endpoint_->send(0, some_length(input_), input_.byte() & 63);
        if (honest_ == nullptr) return;
        return talk((what & 32) != 0 ? *honest_ : *endpoint_, some_length(input_), input_.byte());
      case 13: {  // the endpoint, to the attacker
        const uint8_t how = input_.byte();
        return endpoint_->send(1 + how % endpoint_->names(), some_length(input_), how / 4);
      }
      case 14: {
        const uint8_t how = input_.byte();
        return endpoint_->post(how % 5 == 0 ? FI_ADDR_UNSPEC : how % 5, (how & 32) != 0,
                               some_length(input_), (how & 64) != 0, (how & 128) != 0);
      }
      case 15:
        return endpoint_->cancel(input_.byte());
      case 16: {
        const uint8_t how = input_.byte();
        static constexpr uint64_t kLooks[] = {0, FI_CLAIM, FI_DISCARD, FI_CLAIM};
        if (how % 5 == 4)
          return endpoint_->take_claimed((how & 32) != 0, some_length(input_), how & 64);
        return endpoint_->look(1 + how % 3, (how & 32) != 0, kLooks[how / 64]);
      }
      case 18: {
        const uint8_t how = input_.byte();
        const fi_addr_t to = (how & 1) != 0 ? 0 : 1 + how / 8 % endpoint_->names();
        if ((how & 2) != 0) return endpoint_->add(to);
        return endpoint_->access(to, (how & 4) != 0, how);
      }
      default:
        return;
    }
  }

  void finish() {
    world_.mute = world_.scarce = false;
    world_.stutter = 0;
    thief_.leave();
    relay_.leave();
    if (honest_ == nullptr) start_honest();
    settle_told();
    // Receives for the honest peer may have matched messages of a process that had its address.
    for (int i = 0; i < 300 && endpoint_->restarted; ++i) {
      if (endpoint_->all_arrived(0) && honest_->all_arrived(0)) break;
      for (Side *side : {endpoint_.get(), honest_.get()})
        for (const bool tagged : {false, true}) side->post(0, tagged, 5000, false, false);
      settle_told();
    }
    endpoint_->expect_arrived(0);
    honest_->expect_arrived(0);
    if (world_.acted) reunite();
    // Now the attacker closes its connections.
    for (size_t i = 0; i < world_.links.size(); ++i) {
      Link &link = world_.links[i];
      if (link.side == nullptr && link.other != nullptr && link.other->owner != nullptr)
        end_link(link, false);
    }
    for (int i = 0; i < 40; ++i) {
      while (!world_.calls.empty()) {
        Link *call = world_.calls.back();
        world_.calls.pop_back();
        call->news.push_back([call] {
          call->open = false;
          call->side->core().on_refused(*call->owner, FI_ECONNREFUSED, {});
        });
      }
      for (const bool tagged : {false, true}) {
        // Messages for the earlier honest peer arrive at the new one. Connections that are held are
        // read again when their messages are received.
        if (endpoint_->restarted) honest_->post(0, tagged, 5000, false, false);
        for (Side *side : {endpoint_.get(), world_.acted ? honest_.get() : endpoint_.get()})
          for (int n = 0; n < 8 && side->unexpected() != 0; ++n)
            side->post(FI_ADDR_UNSPEC, tagged, 5000, false, false);
      }
      settle_told();
      if (i > 1 && world_.calls.empty() && endpoint_->idle() && honest_->idle()) break;
      pass(1'000'000'000);
    }
    endpoint_->expect_ended();
    honest_->expect_ended();
    endpoint_->end_receives();
    honest_->end_receives();
  }

  // When thief and relay have left, the two find each other, whatever has happened.
  void reunite() {
    world_.late = false;
    for (Side *from : {honest_.get(), endpoint_.get()}) {
      from->promised = std::min(from->promised, from->sent.size());
      for (int i = 0; i < 300; ++i) {
        for (Side *side : {endpoint_.get(), honest_.get()})
          for (const bool tagged : {false, true})
            for (int n = 0; n < 2; ++n) side->post(0, tagged, 5000, false, false);
        if (i == 0) from->send(0, 10, 1);
        settle_told();
        if (from->all_arrived(0)) break;
      }
      from->expect_arrived(0);
    }
  }

  fuzz::Input &input_;
  World world_;
  Settings settings_;
  Side::Buffered buffered_;
  bool honest_is_buffered_ = false;
  unsigned claims_ = 0;
  Attacker attacker_{input_, world_, settings_};
  Thief thief_{input_, world_};
  Relay relay_{input_, world_};
  std::unique_ptr<Side> endpoint_, honest_;
  uint32_t processes_ = 100;
  uint64_t time_left_ = 2'000'000'000;
};

}  // namespace
}  // namespace weft::rxm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  weft::fuzz::Input input(data, size);
  weft::rxm::Play(input).run();
  return 0;
}
