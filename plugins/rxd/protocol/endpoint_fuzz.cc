// SPDX-License-Identifier: BSD-2-Clause
// A whole endpoint of rxd, in both dialects. The input is a list of events:
//   * The application posts and cancels receives, starts operations, peeks, closes regions, removes
//     and inserts peers.
//     Under FI_BUFFERED_RECV it claims and discards what it was told of.
//   * Strangers send any bytes in any order. Some events follow the protocol, so that the states
//     after the handshake are reached.
//   * Two honest endpoints, one of them in stock's dialect, talk with the same endpoint all the
//     time. The strangers must not affect them: each of their messages arrives once, in order and
//     with its bytes, and succeeds.
//   * In some inputs there are a thief and a relay as well (fuzz_actors.h), and one honest endpoint
//     dies and starts again. The honest endpoints may have an auth_key then, which the others have
//     not. No message of another process is reported under the name of an honest endpoint that has
//     lived and been connected all the time, and none passes through a relay where there is a key.
// After the strangers fall silent, every operation must end, and honest endpoints find each other.
//
//   rxd_protocol_endpoint_fuzz corpus/      // TRACE=1: prints datagrams and warnings
//                                           // WEFT_FUZZ_TALLY=1: what thief and relay did
#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/fuzz_actors.h"

namespace weft::rxd::fuzz {
namespace {

constexpr uint16_t kWeft = World::kMortal, kStock = World::kStock, kFirstStranger = 10;
using sdk::kMillisecond, sdk::kSecond;

Settings settings() {
  Settings s;
  s.tx_size = 32;
  s.unexpected_limit = 1 << 16;
  s.peer_timeout_ns = 2 * kSecond;
  s.max_unnamed_peers = 2;
  s.max_stock_peers = 2;
  return s;
}

// FI_BUFFERED_RECV, with messages in one or more packets that are told of as a whole or not.
Buffered buffered(uint8_t how) {
  return {.on = (how & 0xc0) == 0xc0,
          .limit = (how & 16) != 0 ? size_t{2000} : size_t{200},
          .min = (how & 32) != 0 ? size_t{150} : size_t{0}};
}

class Test {
 public:
  explicit Test(Input &input)
      : input_(input),
        how_(input.byte()),
        acts_((how_ & 14) == 14 ? input.byte() : uint8_t{0}),
        target_(world_.add(kTarget, settings_of_all(), buffered(how_))) {
    for (const uint16_t number : {kWeft, kStock}) start_honest(number);
    relay_.deaf = !acts();
    if (acts()) relay_.flows_to = (acts_ & 4) == 0 ? 0 : (acts_ & 8) != 0 ? kTarget : kWeft;
  }

  void run() {
    // Stock answers an RTS while it asks the same peer itself; the weft endpoint that plays stock
    // does not. So only one of both begins.
    const bool begins = (how_ & 1) != 0;
    const uint16_t peer = stock() ? kStock : kWeft;
    Node &honest = *world_.node(peer);
    (begins ? honest : target_).start({.to = begins ? kTarget : peer, .length = 8});
    receive(0);
    world_.run_for(10 * kMillisecond);
    while (target_.settle_told(0, 100, false)) {
    }
    FUZZ_CHECK(world_.letters[0].arrived == 1, "the first message has not arrived");
    if ((acts_ & 16) != 0) kill();
    while (!input_.empty() && steps_++ < 300) {
      step();
      world_.run_for((input_.byte() & 7) * 20'000);
    }
    settle();
  }

 private:
  bool acts() const { return (how_ & 14) == 14; }
  bool stock() const { return !world_.pair.keyed; }  // stock peers know no keys

  Settings settings_of_all() {
    Settings s = settings();
    if (acts()) s.max_unnamed_peers = 1;
    world_.pair.acted = acts();
    world_.pair.keyed = (acts_ & 3) == 3;
    if (world_.pair.keyed) s.auth_key = "the honest endpoints' key";
    return s;
  }
  void start_honest(uint16_t number) {
    Settings patient = settings_of_all();
    // The honest endpoints wait long enough for a target that is under attack.
    patient.peer_timeout_ns = 1000 * kSecond;
    Node &honest = world_.add(number, patient);
    honest.name(kTarget, true);
    target_.name(number, true);
  }
  // The honest endpoint that may die; null: it is dead.
  Node *mortal() { return thief_.owns_port() ? nullptr : world_.node(kWeft); }
  void kill() {
    if (mortal() == nullptr) return;
    world_.pair.part();
    world_.kill(kWeft);
  }
  void restart() {
    if (mortal() != nullptr || thief_.owns_port()) return;
    world_.chance = 1000 * ++starts_;
    start_honest(kWeft);
  }

  void act(uint8_t what) {
    world_.chance = 1000 * starts_ + 1;
    switch (what % 16) {
      case 0:
        return kill();
      case 1:
        return restart();
      case 2:
        return thief_.take_port();
      case 3:
        return thief_.give_port();
      case 4:
        return thief_.claim();
      case 5:
      case 6:
        return thief_.speak(what >> 4, input_.number(2) % 5000);
      case 7:
        return thief_.leave();
      case 8:
        relay_.flows_to = (what & 64) == 0 ? 0 : (what & 32) != 0 ? kTarget : kWeft;
        return;
      case 9:
      case 10: {
        Node *from = (what & 64) != 0 ? mortal() : &target_;
        if (from == nullptr) return;
        return from->start({.to = World::kRelay,
                            .length = input_.number(2) % 5000,
                            .tag = kActorsTag,
                            .delivery = true,
                            .mark = kRelayed | (from == &target_ ? kTarget : kWeft)});
      }
      case 11:
      case 12: {
        Node *to = (what & 64) != 0 ? mortal() : &target_;
        // There is room left for the receives of those that find each other in the end.
        if (to == nullptr || to->left() <= 16) return;
        return to->post(
            {.from = (what & 16) != 0 ? kWeft : uint16_t{0}, .length = 5000, .tag = kActorsTag});
      }
      default:
        return relay_.pass(input_);
    }
  }

  void step() {
    const uint8_t what = input_.byte();
    if (acts() && what >= 160) return act(what);
    Liar &liar = (what & 128) != 0 ? second_ : first_;
    switch (what % 20) {
      case 0:
        liar.ask();
        break;
      case 1:
        liar.connect(input_);
        break;
      case 2:
        liar.frames(input_);
        break;
      case 3:
        liar.acknowledge(input_);
        break;
      case 4: {
        const uint8_t kind = input_.byte(), flags = input_.byte();
        liar.packet(wire::PacketKind(kind % 12), flags & 31, input_.byte(),
                    input_.take(input_.byte()));
        break;
      }
      case 5: {
        const auto raw = input_.take(input_.byte());
        liar.say({raw.begin(), raw.end()});
        break;
      }
      case 6:
        liar.challenge(input_);
        break;
      case 7:
        liar.accept(input_);
        break;
      case 8:
        liar.stock_rts(input_);
        break;
      case 9:
        liar.stock_cts(input_);
        break;
      case 10:
      case 11:
        liar.stock_packet(input_);
        break;
      case 12:
        liar.answers = !liar.answers;
        break;
      case 13:
        world_.run_for(uint64_t(input_.byte()) * 2 * kMillisecond);
        break;
      case 14:
        post();
        break;
      case 15:
        start();
        break;
      case 16:
        application();
        break;
      case 17:
        talk(kWeft);
        break;
      case 18:
        talk(kStock);
        break;
      case 19:
        // A valid handshake, which a fuzzer would take long to find.
        liar.ask();
        world_.run_for(kMillisecond);
        liar.connect(input_);
        break;
    }
  }

  void post() {
    const uint8_t how = input_.byte();
    // Tagged messages may come from honest endpoints, so these receives name a stranger.
    const bool tagged = (how & 2) != 0;
    const uint16_t from = uint16_t(kFirstStranger + (how & 1));
    target_.post({.from = tagged || (how >> 5 & 3) == 0 ? from : uint16_t{0},
                  .length = input_.number((how >> 4 & 1) + 1u) % 20'000,
                  .tag = uint64_t(how >> 5 & 3),
                  .ignore = (how & 128) != 0 ? ~uint64_t{0} : 0,
                  .tagged = tagged,
                  .multi = (how & 4) != 0 && !tagged,
                  .split = (how & 8) != 0 && (how & 4) == 0});
  }

  void start() {
    const uint8_t how = input_.byte(), more = input_.byte();
    target_.start({.kind = TxOp::Kind(how & 3),
                   .to = uint16_t(kFirstStranger + (how >> 2 & 1)),
                   .length = input_.number((how >> 3 & 1) + 1u),
                   .at = input_.byte(),
                   .key = input_.byte(),
                   .tag = input_.byte(),
                   .tagged = (how & 16) != 0,
                   .delivery = (how & 32) != 0,
                   .transmit = (how & 64) != 0,
                   .fence = (how & 128) != 0,
                   .inject = (more & 1) != 0,
                   .more = (more & 2) != 0,
                   .fetches = (more & 4) != 0});
  }

  void application() {
    const uint8_t what = input_.byte();
    const uint16_t peer = uint16_t(kFirstStranger + (what >> 7));
    switch (what % 13) {
      case 12: {
        const uint16_t to = input_.byte() % 2 != 0 || !stock() ? kWeft : kStock;
        target_.core().on_unreachable(address_of((what & 64) != 0 ? peer : to),
                                      input_.take(input_.byte()));
        target_.settle();
        break;
      }
      case 0:
        target_.cancel(input_.byte());
        break;
      case 1:
        target_.name(peer, true);
        break;
      case 2:
        target_.name(peer, false);
        break;
      case 3:
        target_.open_region(7u + input_.byte() % 3u);
        break;
      case 4:
        // Not kReadable: the honest endpoints read it.
        target_.close_region((input_.byte() & 1) != 0 ? Node::kWritable : Node::kCounter);
        break;
      case 5:
        if (target_.is_buffered()) {
          const uint8_t how = input_.byte();
          target_.settle_told(how / 4, input_.number((how >> 1 & 1) + 1u) % 20'000, (how & 1) != 0);
        } else {
          target_.look((what & 64) != 0 ? FI_CLAIM : 0);
        }
        break;
      case 6:
        if ((what & 64) != 0) {
          target_.claim(input_.byte());
        } else {
          target_.look(FI_DISCARD);
        }
        break;
      case 7:
        target_.full = !target_.full;
        target_.wake();
        break;
      case 8:
        target_.low = !target_.low;
        break;
      case 9:
        target_.reads = !target_.reads;
        if (target_.reads) target_.reap();
        target_.wake();
        break;
      case 10:
        world_.losses = input_.byte() % 4;
        break;
      case 11:
        target_.core().poll();
        target_.core().on_idle();
        target_.settle();
        break;
    }
  }

  // An operation between an honest endpoint and the target.
  void talk(uint16_t number) {
    const uint8_t how = input_.byte();
    const size_t length = input_.number((how >> 6 & 1) + 1u) % 10'000;
    if (!stock()) number = kWeft;
    if (number == kWeft && mortal() == nullptr && (how & 1) != 0) return;
    const bool in = (how & 1) != 0;
    Node &from = in ? *world_.node(number) : target_;
    const uint16_t to = in ? kTarget : number;
    if ((how & 2) != 0) {
      from.start({.kind = TxOp::Kind::kRead, .to = to, .length = length, .at = how});
      return;
    }
    const size_t before = world_.letters.size();
    from.start({.to = to,
                .length = length,
                .delivery = (how & 4) != 0,
                .transmit = (how & 8) != 0,
                .inject = (how & 16) != 0});
    if (world_.letters.size() == before) return;
    if (number == kWeft && mortal() == nullptr) return;
    if ((how & 32) != 0) {
      receive(before);
    } else {
      unwanted_.push_back(before);
    }
  }
  void receive(uint64_t letter) {
    const Letter &l = world_.letters[letter];
    if (!world_.promises(l.from, l.to, l.promise)) return;
    world_.node(l.to)->post({.from = l.from, .length = l.length, .tag = letter});
  }

  // The strangers fall silent, and the application receives all messages of honest endpoints.
  void settle() {
    first_.answers = second_.answers = false;
    thief_.leave();
    relay_.deaf = true;
    if (mortal() == nullptr) restart();
    target_.full = target_.low = false;
    target_.reads = true;
    target_.reap();
    target_.wake();
    world_.losses = 0;
    for (int tries = 0; tries < 100 && !unwanted_.empty(); ++tries) {
      while (!unwanted_.empty() && world_.node(world_.letters[unwanted_.front()].to)->left() > 0) {
        receive(unwanted_.front());
        unwanted_.erase(unwanted_.begin());
      }
      world_.run_for(kSecond / 2);
      while (target_.settle_told(0, 20'000, ++claims_ % 3 == 0)) {
      }
      if (target_.left() == 0) target_.cancel(0);
    }
    // What was claimed makes room for what comes next.
    bool claimed = true;
    for (int tries = 0; tries < 50 && claimed; ++tries) {
      world_.run_for(20 * kSecond);
      claimed = false;
      while (target_.settle_told(0, 20'000, ++claims_ % 3 == 0)) claimed = true;
    }
    FUZZ_CHECK(target_.told() == 0, "messages are left over");
    if (acts()) reunite();
    for (const uint16_t number : {kTarget, kWeft, kStock}) world_.node(number)->check_rest();
    for (const Letter &letter : world_.letters)
      FUZZ_CHECK(letter.arrived == 1 || letter.failed ||
                     !world_.promises(letter.from, letter.to, letter.promise),
                 "a message between honest peers has not arrived");
  }

  // What another process has sent, or what was meant for an earlier one, is received and forgotten.
  // Then the honest endpoints find each other. The first operation may fail: it can be what tells
  // that the peer was restarted.
  void reunite() {
    target_.most_blocks = mortal()->most_blocks = SIZE_MAX;
    for (int i = 0; i < 64; ++i) target_.cancel(0);
    // This one waits long for others, too.
    if (mortal()->operations() != 0) world_.run_for(1100 * kSecond);
    for (int tries = 0; tries < 10; ++tries) {
      for (Node *node : {&target_, mortal()})
        for (int i = 0; i < 20 && node->left() > 8; ++i)
          node->post({.length = 20'000, .ignore = ~uint64_t{0}});
      run_on();
    }
    for (const bool in : {true, false}) {
      bool arrived = false;
      for (int tries = 0; tries < 5 && !arrived; ++tries) {
        const size_t letter = world_.letters.size();
        (in ? *mortal() : target_)
            .start({.to = in ? kTarget : kWeft, .length = 8, .delivery = true});
        FUZZ_CHECK(world_.letters.size() > letter, "an operation could not be started");
        run_on();
        arrived = !world_.pair.apart && !world_.letters[letter].failed;
      }
      FUZZ_CHECK(arrived, "honest endpoints do not find each other");
    }
  }
  void run_on() {
    world_.run_for(20 * kSecond);
    while (target_.settle_told(0, 20'000, ++claims_ % 3 == 0)) {
    }
    world_.run_for(kSecond);
  }

  Input &input_;
  const uint8_t how_, acts_;
  World world_;
  Node &target_;
  Liar first_{world_, kFirstStranger}, second_{world_, kFirstStranger + 1};
  Relay relay_{world_};
  Thief thief_{world_, settings()};
  uint32_t starts_ = 0;
  std::vector<uint64_t> unwanted_;  // letters without a receive
  int steps_ = 0;
  unsigned claims_ = 0;
};

}  // namespace
}  // namespace weft::rxd::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  weft::fuzz::Input input(data, size);
  weft::rxd::fuzz::Test test(input);
  test.run();
  return 0;
}
