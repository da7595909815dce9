// SPDX-License-Identifier: BSD-2-Clause
// An endpoint of rxd as a whole, in both dialects: the input is a list of things that happen. An
// application posts, starts, cancels, looks, closes regions, removes and inserts peers; strangers
// say any bytes in any order, some by the book so that what is behind the handshake is reached; two
// honest endpoints, one of them in stock's dialect, talk with the same endpoint all the time and
// must not notice: each of their messages arrives once, in order, with its bytes, and ends well.
// When the strangers fall silent everything that was started ends.
//
//   rxd_protocol_endpoint_fuzz corpus/      // TRACE=1: what is sent, and what is warned of
#include "plugins/rxd/protocol/fuzz_world.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd::fuzz {
namespace {

using weft::fuzz::Input;

constexpr uint16_t kTarget = 1, kWeft = 2, kStock = World::kStock, kFirstStranger = 10;
constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMillisecond;

// Says what the input says, and remembers of what it heard what a liar needs.
class Liar final : public Stranger {
 public:
  Liar(World &world, uint16_t number) : world_(world), number_(number) { world.add(number, *this); }

  bool answers = false;  // acknowledges what comes

  void hear(std::vector<uint8_t> bytes) override {
    if (const auto packet = wire::parse(bytes)) {
      hear(*packet);
      return;
    }
    const stock::Parsed parsed = stock::parse(bytes);
    if (parsed.reject != stock::Reject::kNone) return;
    const stock::Packet &p = parsed.packet;
    switch (p.type) {
      case stock::Type::kRts:
        question_ = p.index;
        break;
      case stock::Type::kCts:
        number_there_ = uint32_t(p.index);
        break;
      case stock::Type::kAck:
        break;
      default:
        if (p.id != 0) request_ = p.id;
        heard_ = std::max(heard_, p.sequence + 1);
        if (answers) acknowledge_stock(heard_, 128);
        break;
    }
  }

  // ---- weft's dialect ----
  void ask() {
    uint8_t rts[stock::kMaxHeader];
    const size_t size = stock::encode(
        {.type = stock::Type::kRts, .marked = true, .index = 9, .name = address_of(number_)}, rts);
    say({rts, rts + size});
  }
  // With the token of the last challenge.
  void connect(Input &input) {
    const uint8_t how = input.byte();
    uint8_t name[wire::kNameSize] = {};
    const sdk::SockAddr own = address_of((how & 8) != 0 ? input.byte() : number_);
    std::memcpy(name, own.c(), own.size());
    ours_ = {.instance = uint64_t(how & 3) + 1,
             .connection = uint32_t(how >> 4 & 3) + 1,
             .cookie = uint32_t(input.byte()) + 1,
             .datagram = (how & 4) != 0 ? input.number(2) : 9000,
             .flags = (how & 64) != 0 ? kPartVerify : 0,
             .limit = 64,
             .messages = (how & 128) != 0 ? input.byte() : 64u,
             .credit = 64};
    uint8_t bytes[wire::kConnectSize];
    wire::Writer w(bytes);
    w.connect({}, 9, wire::Token(token_), name, ours_);
    say({bytes, bytes + w.size()});
    sequence_ = next_id_ = 0;
    received_ = 0;
  }
  // Answers an RTS of the target as a weft endpoint, then its connect.
  void challenge(Input &input) {
    uint8_t token[wire::kTokenSize] = {input.byte()};
    uint8_t bytes[wire::kChallengeSize];
    wire::Writer w(bytes);
    w.challenge({}, question_ + input.byte(), wire::Token(token));
    say({bytes, bytes + w.size()});
  }
  void accept(Input &input) {
    ours_.instance = input.byte();
    ours_.connection = input.byte() + 1u;
    ours_.cookie = input.byte() + 1u;
    uint8_t bytes[wire::kAcceptSize];
    wire::Writer w(bytes);
    w.accept({.to = theirs_.connection, .cookie = theirs_.cookie}, 0, ours_);
    say({bytes, bytes + w.size()});
    sequence_ = next_id_ = 0;
    received_ = 0;
  }
  void packet(wire::PacketKind kind, uint16_t flags, uint32_t sequence,
              std::span<const uint8_t> content) {
    std::vector<uint8_t> bytes(wire::kHeaderSize);
    wire::Writer w(bytes);
    w.header({.kind = kind,
              .flags = flags,
              .to = theirs_.connection,
              .cookie = theirs_.cookie + ours_.cookie,
              .sequence = sequence,
              .time = uint32_t(world_.now / 1000)});
    bytes.insert(bytes.end(), content.begin(), content.end());
    say(std::move(bytes));
  }
  void frames(Input &input) {
    uint8_t room[9000];
    wire::Writer w(room);
    const uint8_t how = input.byte();
    bool starts = (how & 1) != 0;
    for (int i = (how >> 1 & 3) + 1; i > 0; --i) starts |= frame(input, w);
    const uint32_t sequence = (how & 128) != 0 ? input.byte() : sequence_++;
    packet(wire::PacketKind::kData, starts ? wire::kFlagOrdered : 0, sequence, w.written());
  }
  void acknowledge(Input &input) {
    wire::Acknowledgement ack;
    const uint8_t how = input.byte();
    ack.next = (how & 1) != 0 ? input.byte() : received_;
    ack.echo = (how & 2) != 0 ? input.number(4) : 0;
    ack.limit = received_ + input.byte();
    ack.messages = 64 + input.byte();
    ack.credit = 64 + input.byte();
    ack.words = how >> 2 & 3;
    for (uint32_t i = 0; i < ack.words; ++i) ack.bitmap[i] = input.number(4);
    send(ack, wire::PacketKind((how & 128) != 0 ? 9 : 5));
  }
  // ---- stock's ----
  void stock_rts(Input &input) {
    const uint8_t how = input.byte();
    say({.type = stock::Type::kRts,
         .marked = (how & 1) != 0,
         .index = (how & 2) != 0 ? input.number(4) : number_,
         .name = address_of((how & 4) != 0 ? input.byte() : number_)},
        {});
    if ((how & 8) != 0) spoken_ = 0;
  }
  void stock_cts(Input &input) {
    const uint8_t how = input.byte();
    say({.type = stock::Type::kCts,
         .peer = number_,
         .index = (how & 1) != 0 ? uint64_t{input.number(4)} << (how & 32) : number_,
         .rts_index = question_ + ((how & 2) != 0 ? input.byte() : 0)},
        {});
  }
  void acknowledge_stock(uint64_t next, uint16_t window) {
    say({.type = stock::Type::kAck, .peer = number_there_, .sequence = next, .window = window}, {});
  }
  void stock_packet(Input &input) {
    const uint8_t what = input.byte(), how = input.byte();
    stock::Packet p{.type = stock::Type(what % 14), .peer = number_there_};
    p.sequence = (how & 1) != 0 ? input.byte() : spoken_++;
    if ((how & 2) != 0) p.peer = input.byte();
    if (p.type == stock::Type::kAck) {
      p.window = input.byte();
      if ((how & 4) != 0) p.sequence = heard_;
      return say(p, {});
    }
    p.is_inline = (how & 8) != 0;
    p.tag = input.byte();
    p.id = (how & 16) != 0 ? request_ : input.byte();
    p.segment = input.byte();
    size_t payload = input.byte() * 8u;
    if ((what & 128) != 0) payload = stock::kSegment;
    p.size = (how & 32) != 0 ? input.number(3) : payload;
    p.packets =
        (how & 64) != 0 ? input.byte() : stock::packets_of(p.size, std::min(payload, p.size));
    p.has_data = (how & 128) != 0;
    p.data = p.tag;
    if (p.type >= stock::Type::kRead && p.type <= stock::Type::kCompare) {
      p.count = uint8_t(input.byte() % 4 + 1);
      uint64_t left = p.size;
      for (size_t i = 0; i < p.count; ++i) {
        const uint64_t n = i + 1 == p.count ? left : left / 2;
        p.vectors[i] = {input.byte() * 8u, n, 7u + input.byte() % 4u};
        left -= n;
      }
      p.datatype = input.byte() % 20u;
      p.operation = input.byte() % 20u;
    }
    say(p, std::vector<uint8_t>(payload, uint8_t(0xA5)));
  }
  void say(std::vector<uint8_t> bytes) { world_.carry(number_, kTarget, std::move(bytes)); }

 private:
  void hear(const wire::Packet &packet) {
    if (const auto *challenge = std::get_if<wire::Challenge>(&packet.content)) {
      std::copy(challenge->token.begin(), challenge->token.end(), token_.begin());
    } else if (const auto *connect = std::get_if<wire::Connect>(&packet.content)) {
      theirs_ = connect->part;
    } else if (const auto *accept = std::get_if<wire::Accept>(&packet.content)) {
      theirs_ = accept->part;
    } else if (packet.header.kind == wire::PacketKind::kData) {
      received_ = std::max(received_, packet.header.sequence + 1);
      wire::FrameReader reader(packet);
      while (reader.next()) theirs_id_ = std::max(theirs_id_, reader.id());
      if (!answers) return;
      wire::Acknowledgement ack;
      ack.next = received_;
      ack.limit = received_ + 64;
      ack.messages = 1000;
      ack.credit = 1000;
      ack.words = 0;
      send(ack, wire::PacketKind::kAcknowledge);
    }
  }
  void send(const wire::Acknowledgement &ack, wire::PacketKind kind) {
    uint8_t bytes[wire::kAcknowledgementSize + 8 * wire::kMaxWords];
    wire::Writer w(bytes);
    w.acknowledgement(ack);
    packet(kind, wire::kFlagAcknowledgement, 0, w.written());
  }
  // True: it starts an operation.
  bool frame(Input &input, wire::Writer &w) {
    const uint8_t what = input.byte(), how = input.byte();
    const size_t n = std::min<size_t>((how & 64) != 0 ? input.byte() * 16u : input.byte(), 4000);
    // Of an operation of ours, or of the target's.
    const uint32_t ours = (how & 128) != 0 ? input.byte() : next_id_;
    const uint32_t last = ours - (input.byte() % 4u), theirs = theirs_id_ - (input.byte() % 4u);
    RmaVector vectors[wire::kVectorLimit];
    const size_t count = how % 4u + 1;
    uint64_t total = 0;
    if (what % 9 >= 4 && what % 9 <= 6)
      for (size_t i = 0; i < count; ++i) {
        vectors[i] = {input.byte() * 8u, input.number(2) % 5000, 7u + input.byte() % 4u};
        total += vectors[i].length;
      }
    const std::span<const RmaVector> where(vectors, count);
    const auto payload = [&](size_t size) {
      const std::vector<uint8_t> bytes(std::min(size, w.room()), uint8_t(0xA5));
      w.payload(bytes);
    };
    switch (what % 9) {
      case 0: {
        const bool announced = (how & 8) != 0;
        if (w.room() < 40 + n) return false;
        w.message({.tagged = (how & 1) != 0,
                   .has_data = (how & 2) != 0,
                   .wants_done = (how & 4) != 0,
                   .announced = announced,
                   .id = ours,
                   .tag = uint64_t(how >> 4 & 3),
                   .total = announced ? n + input.number(3) : n},
                  n);
        payload(n);
        break;
      }
      case 1:
        if (w.room() < 40 + n) return false;
        w.data({.answers = (how & 1) != 0,
                .id = (how & 1) != 0 ? theirs : last,
                .offset = input.number(how % 3u + 1)},
               n);
        payload(n);
        return false;
      case 2:
        w.pull({.id = theirs, .limit = input.number(3)});
        return false;
      case 3:
        w.done({.status = uint16_t(how & 3), .id = theirs});
        return false;
      case 4:
        w.read(ours, where);
        break;
      case 5:
        if (w.room() < 140 + n) return false;
        w.write({.has_data = (how & 16) != 0, .id = ours, .total = total}, where, n);
        payload(n);
        break;
      case 6: {
        if (w.room() < 140 + n) return false;
        w.atomic({.kind = uint8_t(how >> 4 & 3),
                  .datatype = input.byte(),
                  .operation = input.byte(),
                  .id = ours},
                 where, n);
        payload(n);
        break;
      }
      case 7:
        if (w.room() < 40 + n) return false;
        w.result({.status = uint16_t(how & 3), .id = theirs}, n);
        payload(n);
        return false;
      default:
        w.ping();
        return false;
    }
    next_id_ = ours + 1;
    return true;
  }
  void say(const stock::Packet &packet, const std::vector<uint8_t> &payload) {
    std::vector<uint8_t> bytes(stock::kMaxHeader);
    bytes.resize(stock::encode(packet, std::span<uint8_t, stock::kMaxHeader>(bytes)));
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    say(std::move(bytes));
  }

  World &world_;
  const uint16_t number_;
  std::array<uint8_t, wire::kTokenSize> token_{};
  wire::Part ours_, theirs_;
  uint32_t sequence_ = 0, next_id_ = 0, theirs_id_ = 0, received_ = 0;
  uint64_t question_ = 0;
  uint32_t number_there_ = 1, request_ = 0;
  uint64_t heard_ = 0, spoken_ = 0;  // numbers of stock's packets
};

Settings settings() {
  Settings s;
  s.tx_size = 32;
  s.unexpected_limit = 1 << 16;
  s.peer_timeout_ns = 2 * kSecond;
  s.max_unnamed_peers = 2;
  s.max_stock_peers = 2;
  return s;
}

class Test {
 public:
  explicit Test(Input &input) : input_(input), target_(world_.add(kTarget, settings())) {
    Settings patient = settings();
    // Nobody honest is given up because of what the target has to bear.
    patient.peer_timeout_ns = 1000 * kSecond;
    for (const uint16_t number : {kWeft, kStock}) {
      Node &honest = world_.add(number, patient);
      honest.name(kTarget, true);
      target_.name(number, true);
    }
  }

  void run() {
    // Stock answers a question while it asks itself, and ours of that name does not: so only one of
    // both begins.
    const bool begins = (input_.byte() & 1) != 0;
    Node &honest = *world_.node(kStock);
    (begins ? honest : target_).start({.to = begins ? kTarget : kStock, .length = 8});
    receive(0);
    world_.run_for(10 * kMillisecond);
    FUZZ_CHECK(world_.letters[0].arrived == 1, "the first message has not arrived");
    while (!input_.empty() && steps_++ < 300) {
      step();
      world_.run_for((input_.byte() & 7) * 20'000);
    }
    settle();
  }

 private:
  void step() {
    const uint8_t what = input_.byte();
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
        // By the book, because a fuzzer takes long to find it.
        liar.ask();
        world_.run_for(kMillisecond);
        liar.connect(input_);
        break;
    }
  }

  void post() {
    const uint8_t how = input_.byte();
    // What is tagged may be of somebody honest, and is not for them.
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
        const uint16_t to = input_.byte() % 2 != 0 ? kWeft : kStock;
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
        // The honest ones read the other one.
        target_.close_region((input_.byte() & 1) != 0 ? Node::kWritable : Node::kCounter);
        break;
      case 5:
        target_.look((what & 64) != 0 ? FI_CLAIM : 0);
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

  // Something between an honest endpoint and the target.
  void talk(uint16_t number) {
    const uint8_t how = input_.byte();
    const size_t length = input_.number((how >> 6 & 1) + 1u) % 10'000;
    Node &honest = *world_.node(number);
    const bool in = (how & 1) != 0;
    Node &from = in ? honest : target_;
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
    if ((how & 32) != 0) {
      receive(before);
    } else {
      unwanted_.push_back(before);
    }
  }
  void receive(uint64_t letter) {
    const Letter &l = world_.letters[letter];
    world_.node(l.to)->post({.from = l.from, .length = l.length, .tag = letter});
  }

  // The strangers say nothing any more, and the application wants what it has been sent.
  void settle() {
    first_.answers = second_.answers = false;
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
      if (target_.left() == 0) target_.cancel(0);
    }
    world_.run_for(20 * kSecond);
    for (const uint16_t number : {kTarget, kWeft, kStock}) world_.node(number)->check_rest();
    for (const Letter &letter : world_.letters)
      FUZZ_CHECK(letter.arrived == 1 || letter.failed,
                 "a message between honest peers has not arrived");
  }

  Input &input_;
  World world_;
  Node &target_;
  Liar first_{world_, kFirstStranger}, second_{world_, kFirstStranger + 1};
  std::vector<uint64_t> unwanted_;  // letters without a receive
  int steps_ = 0;
};

}  // namespace
}  // namespace weft::rxd::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  weft::fuzz::Input input(data, size);
  weft::rxd::fuzz::Test test(input);
  test.run();
  return 0;
}
