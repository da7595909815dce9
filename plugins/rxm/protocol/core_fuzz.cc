// SPDX-License-Identifier: BSD-2-Clause
// The whole protocol under an attack, with state: an endpoint whose application posts, sends,
// reads, writes, cancels, looks, and changes its address vector; an attacker with three addresses
// of its own, which connects as anybody, answers or does not, and says any bytes in any order; and
// an honest peer in the same endpoint, who must not notice. The carrier between them has real
// memory: it writes where it was told to for as long as it was allowed to.
//
// What must hold, whatever the input says:
// * every operation and every receive ends once, and its memory is the application's from then on;
// * a receive that succeeds has every byte of its message, and nothing else is written anywhere;
// * a message is from whom it says that it is, as long as it waits for a receive;
// * no more is kept of what nobody receives than may be;
// * all between the endpoint and the honest peer arrives once, unspoilt and in order;
// * nothing is left over.
#include "plugins/rxm/protocol/fuzz_side.h"

namespace weft::rxm {

// Something happens that was going to. False: nothing can.
bool World::step() {
  const size_t turn = turns++;
  const bool back_first = turn % 3 == 0, event_first = turn % 2 == 0;
  if (back_first && come_back()) return true;
  if (event_first && event()) return true;
  for (size_t i = 0; i < links.size(); ++i) {
    Link &link = links[++cursor % links.size()];
    if (link.side == nullptr) continue;
    if (link.owner == nullptr) {
      link.news.clear();
      link.inbox.clear();
      continue;
    }
    if (!link.news.empty()) {
      const auto news = std::move(link.news.front());
      link.news.pop_front();
      news();
      return true;
    }
    if (event_first && sent(link)) return true;
    if (!link.inbox.empty()) {
      Item item = std::move(link.inbox.front());
      link.inbox.pop_front();
      if (link.side->take(link, item)) return true;
      link.inbox.push_front(std::move(item));
    }
    if (sent(link)) return true;
  }
  return event() || come_back();
}

bool World::event() {
  if (events.empty()) return false;
  const auto next = std::move(events.front());
  events.pop_front();
  next();
  return true;
}

bool World::come_back() {
  if (returns.empty()) return false;
  const Return r = std::move(returns.front());
  returns.pop_front();
  r.side->come_back(r);
  return true;
}

bool World::sent(Link &link) {
  if (link.sent.empty()) return false;
  Token *token = link.sent.front();
  link.sent.pop_front();
  link.side->core().on_sent(*token, 0);
  return true;
}

namespace {

class Play {
 public:
  explicit Play(fuzz::Input &input) : input_(input) {
    const uint8_t how = input.byte();
    settings_.eager_limit = 512;
    settings_.receive_count = kSharedBuffers;
    settings_.sar_limit = 2048;
    settings_.rendezvous_write = (how & 1) != 0;
    settings_.credits = (how & 2) != 0;
    if (settings_.credits) settings_.receive_count = kOwnBuffers;
    settings_.max_connections = (how & 4) != 0 ? 2 : 0;
    settings_.tx_size = 24;
    settings_.max_strangers = 3;
    settings_.max_controls = 160;
    settings_.max_segments = 6;
    settings_.unexpected_limit = 20000;
    settings_.owed_limit = 4096;
    settings_.connect_timeout_ns = 5'000'000'000;
    world_.low = (how & 8) != 0;
    endpoint_ = start(kEndpoint);
    world_.endpoint = endpoint_.get();
    endpoint_->insert(kHonest, 0);
    endpoint_->insert(kAttacker, 1);
    endpoint_->insert(kAttacker + 1, 2);
    start_honest();
  }
  ~Play() {
    endpoint_.reset();
    honest_.reset();
  }

  void run() {
    const size_t kMost = 2000;
    for (size_t i = 0; i < kMost && !input_.empty(); ++i) act();
    if ((input_.byte() & 7) == 7) return;  // closed in the middle of it
    finish();
  }

 private:
  std::unique_ptr<Side> start(uint16_t port) {
    Settings settings = settings_;
    settings.process = ++processes_;
    return std::make_unique<Side>(world_, port, settings);
  }
  // The two know each other before the attack begins.
  void start_honest() {
    honest_ = start(kHonest);
    honest_->base = uint64_t(processes_) * 100'000;
    world_.honest = honest_.get();
    honest_->insert(kEndpoint, 0);
    honest_->peer = endpoint_.get();
    endpoint_->peer = honest_.get();
    talk(*honest_, 10, 1);
    if (endpoint_->restarted) return;
    talk(*endpoint_, 10, 1);
    settle();
  }
  // It dies, and is started again at the same address. `silent`: nobody hears of its death.
  void restart_honest(bool silent) {
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
    for (Link *link : ends) end(*link, false);
  }
  // A message between the two honest ones, with its receive.
  void talk(Side &from, size_t length, uint8_t how) {
    Side &to = from.peer != nullptr ? *from.peer : *endpoint_;
    if (from.full() || to.full()) return;
    if ((how & 32) != 0) from.send(0, length, how);
    to.post(0, (how & 1) != 0, (how & 64) != 0 ? length / 2 : 5000, false, (how & 128) != 0);
    if ((how & 32) == 0) from.send(0, length, how);
  }
  size_t length() {
    static constexpr size_t kSizes[] = {0, 1, 64, 65, 448, 449, 512, 513, 1024, 2048, 2049, 5000};
    return kSizes[input_.byte() % std::size(kSizes)];
  }
  void poll() {
    endpoint_->core().poll();
    endpoint_->reap();
    const Core &core = endpoint_->core();
    FUZZ_CHECK(core.strangers() <= settings_.max_strangers + endpoint_->removed,
               "too many strangers");
    // Beyond the limit of each the one packet with which it is told to wait.
    FUZZ_CHECK(
        core.unexpected_bytes() <= settings_.unexpected_limit +
                                       core.objects() * (sizeof(RxMessage) + settings_.eager_limit),
        "more is kept than may be");
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
  // Until nothing happens any more.
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

  void act() {
    world_.now += 1000;
    const uint8_t what = input_.byte();
    switch (what % 24) {
      case 0:
      case 1:
        for (int n = what / 24 + 1; n > 0 && world_.step(); --n) poll();
        return;
      case 2:
      default:
        return poll();
      case 3: {
        // Not so much that the honest ones give up, for whom nothing happens meanwhile.
        const uint64_t ns = std::min<uint64_t>(input_.byte() * UINT64_C(1'000'000), time_left_);
        time_left_ -= ns;
        return pass(ns);
      }
      case 4:
        return connect();
      case 5:
        return answer_call();
      case 6:
      case 7:
      case 8:
        return say();
      case 9:
        return say_segment();
      case 10:
        return answer_read();
      case 11:
        return hang_up();
      case 12:
        if (honest_ == nullptr) return;
        return talk((what & 32) != 0 ? *honest_ : *endpoint_, length(), input_.byte());
      case 13: {  // the endpoint, to the attacker
        const uint8_t how = input_.byte();
        return endpoint_->send(1 + how % endpoint_->names(), length(), how / 4);
      }
      case 14: {
        const uint8_t how = input_.byte();
        return endpoint_->post(how % 5 == 0 ? FI_ADDR_UNSPEC : how % 5, (how & 32) != 0, length(),
                               (how & 64) != 0, (how & 128) != 0);
      }
      case 15:
        return endpoint_->cancel(input_.byte());
      case 16: {
        const uint8_t how = input_.byte();
        static constexpr uint64_t kLooks[] = {0, FI_CLAIM, FI_DISCARD, FI_CLAIM};
        if (how % 5 == 4) return endpoint_->take_claimed((how & 32) != 0, length(), how & 64);
        return endpoint_->look(1 + how % 3, (how & 32) != 0, kLooks[how / 64]);
      }
      case 17:
        return change_names();
      case 18: {
        const uint8_t how = input_.byte();
        const fi_addr_t to = (how & 1) != 0 ? 0 : 1 + how / 8 % endpoint_->names();
        if ((how & 2) != 0) return endpoint_->add(to);
        return endpoint_->access(to, (how & 4) != 0, how);
      }
      case 20:
        return reach();
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

  // ---- the attacker ----
  uint8_t someone() { return uint8_t(1 + input_.byte() % kNames); }
  // Of the attacker's ends, one that the endpoint still has.
  Link *an_end(uint8_t which) {
    size_t n = 0;
    const auto lives = [](const Link &l) {
      return l.side == nullptr && l.who != 0 && l.open && l.other != nullptr &&
             l.other->owner != nullptr;
    };
    for (const Link &l : world_.links) n += lives(l);
    if (n == 0) return nullptr;
    n = which % n;
    for (Link &l : world_.links)
      if (lives(l) && n-- == 0) return &l;
    return nullptr;
  }
  void connect() {
    if (world_.links.size() > 60) return;
    const uint8_t how = input_.byte();
    // Where idle connections are closed nothing is promised about a name that nobody uses.
    const bool thief = how % 4 == 3 && settings_.max_connections == 0;
    const uint8_t who = thief ? kThief : uint8_t(1 + how % 3);
    Link &link = world_.make(nullptr, nullptr);
    link.who = who;
    const uint16_t port = who == kThief ? kHonest : uint16_t(kAttacker + who - 1);
    ConnectData data{.port = port,
                     .flow_control = (how & 4) != 0 ? FlowControl::kOn : FlowControl::kOff,
                     .eager_limit = 512,
                     .receive_count = 8,
                     .level = uint8_t((how & 8) != 0 ? kLevel : 0),
                     .process = uint32_t(how / 32),
                     .index = how};
    ConnectBytes bytes = encode(data);
    if ((how & 16) != 0) {
      const uint8_t at = input_.byte();
      bytes[at % bytes.size()] = input_.byte();
      // The port says who it is.
      std::memcpy(bytes.data() + 4, &port, sizeof port);
    }
    world_.events.push_back([this, &link, bytes] {
      sdk::SockAddr from = address_of(kAttacker, world_.low);
      from.set_port(50000);
      endpoint_->arrive(link, from, {bytes.begin(), bytes.end()});
    });
  }
  void answer_call() {
    const uint8_t how = input_.byte();
    if (world_.calls.empty()) return;
    Link *call = world_.calls[how / 8 % world_.calls.size()];
    std::erase(world_.calls, call);
    if (how % 8 < 5) {
      Link &link = world_.make(nullptr, nullptr);
      link.who = call->who;
      link.other = call;
      call->other = &link;
      AcceptBytes bytes = encode(AcceptData{.process = 1,
                                            .index = how,
                                            .receive_count = 8,
                                            .level = uint8_t(how % 2),
                                            .flow_control = FlowControl::kOn});
      if (how % 8 == 4) bytes[input_.byte() % bytes.size()] = input_.byte();
      call->news.push_back([call, bytes] { call->side->core().on_connected(*call->owner, bytes); });
      return;
    }
    const RejectBytes bytes = encode(static_cast<RejectReason>(how % 8 - 5));
    call->news.push_back([call, bytes] {
      call->open = false;
      const bool hung_up = parse_reject(bytes) == RejectReason::kUnspecified;
      call->side->core().on_refused(*call->owner, FI_ECONNREFUSED, bytes, hung_up);
    });
  }
  void deliver(Link &link, std::vector<uint8_t> bytes) {
    if (bytes.size() > kHeaderSize + settings_.eager_limit)
      bytes.resize(kHeaderSize + settings_.eager_limit);
    // The payload says who it is.
    if (bytes.size() > kHeaderSize && bytes[1] <= 1)
      for (size_t i = kHeaderSize; i < bytes.size(); ++i) bytes[i] = mark_of(link.who);
    link.other->inbox.push_back(
        {.kind = Item::Kind::kPacket, .bytes = std::move(bytes), .vector = {}});
  }
  uint64_t id() {
    const uint8_t which = input_.byte();
    if (which < 64 || world_.ids.empty()) return which % 8;
    return world_.ids[which % world_.ids.size()];
  }
  void say() {
    Link *link = an_end(input_.byte());
    const uint8_t what = input_.byte();
    if (what == 255) {  // as it is
      const auto raw = input_.take(input_.byte());
      if (link != nullptr && !raw.empty()) deliver(*link, {raw.begin(), raw.end()});
      return;
    }
    static constexpr PacketType kTypes[] = {PacketType::kEager,      PacketType::kSegment,
                                            PacketType::kRendezvous, PacketType::kReadDone,
                                            PacketType::kAtomic,     PacketType::kAtomicResponse,
                                            PacketType::kCredit,     PacketType::kWriteTarget,
                                            PacketType::kWriteDone,  PacketType::kPart};
    const PacketType type = kTypes[what % std::size(kTypes)];
    const uint8_t how = input_.byte();
    WireHeader h = header_of(type, how);
    h.message = id();
    h.op = uint8_t((how & 1) != 0 ? PacketOp::kTagged : PacketOp::kMessage);
    h.flags = (how & 2) != 0 ? kFlagRemoteData : 0;
    h.tag = how;
    std::vector<uint8_t> data;
    const auto append = [&data](const void *at, size_t n) {
      const auto *bytes = static_cast<const uint8_t *>(at);
      data.insert(data.end(), bytes, bytes + n);
    };
    switch (type) {
      case PacketType::kEager:
        data.resize(length() % 513);
        h.size = data.size();
        break;
      case PacketType::kSegment:
        h.control_data = how >> 2 & 3;
        h.segment_number = how >> 4;
        data.resize(length() % 513);
        h.segment_size = uint16_t(data.size());
        h.size = length();
        break;
      case PacketType::kRendezvous:
      case PacketType::kWriteTarget: {
        WireVectors vectors{};
        vectors.count = uint8_t(1 + (how >> 2 & 3));
        for (size_t i = 0; i < vectors.count && i < kMaxVectors; ++i) {
          vectors.vector[i] = {0, length(), how};
          h.size += vectors.vector[i].length;
        }
        append(&vectors, sizeof vectors);
        break;
      }
      case PacketType::kAtomic: {
        h.op = uint8_t(6 + how % 3);
        h.atomic.datatype = FI_UINT64;
        h.atomic.operation = uint8_t(h.op == 8        ? FI_CSWAP
                                     : (how & 8) != 0 ? FI_ATOMIC_READ
                                                      : FI_SUM);
        h.atomic.vectors = 1;
        RmaVector vectors[kMaxVectors] = {{0, 1, (how & 16) != 0 ? kCounterKey : 3}};
        append(vectors, sizeof vectors);
        data.resize(data.size() + 8 * ((h.op == 8 ? 2 : 1) - ((how & 8) != 0 ? 1 : 0)));
        h.size = data.size();
        break;
      }
      case PacketType::kAtomicResponse: {
        uint8_t status[kAtomicStatusSize];
        const uint32_t n = (how & 4) != 0 ? 8 : how >> 4;
        encode_status((how & 8) != 0 ? -FI_EACCES : 0, n, status);
        append(status, sizeof status);
        data.resize(data.size() + n);
        break;
      }
      case PacketType::kCredit:
      case PacketType::kPart:
        h.control_data = how >> 2;
        break;
      default:
        break;
    }
    std::vector<uint8_t> bytes(kHeaderSize);
    std::memcpy(bytes.data(), &h, sizeof h);
    bytes.insert(bytes.end(), data.begin(), data.end());
    if (what >= 200) {
      const uint8_t at = input_.byte();
      bytes[at % bytes.size()] = input_.byte();
    }
    if (link != nullptr) deliver(*link, std::move(bytes));
  }
  // The next of a message in segments, as it should be.
  void say_segment() {
    const uint8_t how = input_.byte();
    Link *link = an_end(how / 16);
    if (link == nullptr) return;
    Run &run = runs_[link];
    if (run.at == run.length) run = {++run.id, 600 + length() % 2000, 0, 0};
    WireHeader h = header_of(PacketType::kSegment, 0);
    const size_t n = std::min<size_t>(run.length - run.at, 512);
    h.message = run.id;
    h.op = uint8_t((how & 1) != 0 ? PacketOp::kTagged : PacketOp::kMessage);
    h.size = run.length;
    h.segment_size = uint16_t(n);
    h.segment_number = run.number++;
    h.control_data = uint64_t(run.at == 0                ? SegmentKind::kFirst
                              : run.at + n == run.length ? SegmentKind::kLast
                                                         : SegmentKind::kMiddle);
    run.at += n;
    std::vector<uint8_t> bytes(kHeaderSize + n);
    std::memcpy(bytes.data(), &h, sizeof h);
    deliver(*link, std::move(bytes));
  }
  void answer_read() {
    const uint8_t how = input_.byte();
    if (world_.asks.empty()) return;
    const World::Ask ask = world_.asks[how / 4 % world_.asks.size()];
    std::erase_if(world_.asks, [&](const World::Ask &a) { return a.token == ask.token; });
    Item reply{.kind = Item::Kind::kReply,
               .bytes = std::vector<uint8_t>(ask.length, mark_of(ask.link->other->who)),
               .vector = {},
               .token = ask.token,
               .err = how % 4 == 3 ? FI_EIO : 0};
    ask.link->inbox.push_back(std::move(reply));
  }
  // Memory of the endpoint, by any key that there is.
  void reach() {
    Link *link = an_end(input_.byte());
    const std::vector<uint64_t> keys = endpoint_->keys();
    const uint8_t how = input_.byte();
    if (link == nullptr || keys.empty()) return;
    std::vector<uint8_t> bytes(size_t(how), mark_of(link->who));
    const RmaVector vector{0, how, keys[input_.byte() % keys.size()]};
    if ((how & 1) != 0) {
      endpoint_->peek(*link->other, vector, bytes);
    } else {
      endpoint_->poke(*link->other, vector, bytes.data());
    }
  }
  void hang_up() {
    const uint8_t how = input_.byte();
    if (Link *link = an_end(how / 2)) end(*link, (how & 1) != 0);
  }
  static void end(Link &link, bool reset) {
    link.open = false;
    if (reset) link.other->inbox.clear();  // overtakes what was said
    link.other->inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
  }

  // Its addresses come and go in the vector, and get each other's places there.
  void change_names() {
    const uint8_t how = input_.byte();
    if ((how & 1) != 0) return endpoint_->remove(1 + how / 2 % 4);
    const uint8_t who = uint8_t(1 + how / 2 % kNames);
    for (fi_addr_t i = 0; i < endpoint_->names(); ++i)
      if (endpoint_->name(i) == who) return;  // twice would be allowed, and is another story
    endpoint_->insert(uint16_t(kAttacker + who - 1), who);
  }

  void finish() {
    world_.mute = world_.scarce = false;
    world_.stutter = 0;
    if (honest_ == nullptr) start_honest();
    settle();
    // Receives for it may have gone to whoever had its name in between.
    for (int i = 0; i < 300 && endpoint_->restarted; ++i) {
      if (endpoint_->all_arrived(0) && honest_->all_arrived(0)) break;
      for (Side *side : {endpoint_.get(), honest_.get()})
        for (const bool tagged : {false, true}) side->post(0, tagged, 5000, false, false);
      settle();
    }
    endpoint_->expect_arrived(0);
    honest_->expect_arrived(0);
    // Now the attacker leaves, and whoever waited for it is told.
    for (size_t i = 0; i < world_.links.size(); ++i) {
      Link &link = world_.links[i];
      if (link.side == nullptr && link.other != nullptr && link.other->owner != nullptr)
        end(link, false);
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
        // What was meant for the last honest one gets there too; and who made us keep too much is
        // read again when that is received.
        if (endpoint_->restarted) honest_->post(0, tagged, 5000, false, false);
        for (int n = 0; n < 8 && endpoint_->unexpected() != 0; ++n)
          endpoint_->post(FI_ADDR_UNSPEC, tagged, 5000, false, false);
      }
      settle();
      if (i > 1 && world_.calls.empty() && endpoint_->idle() && honest_->idle()) break;
      pass(1'000'000'000);
    }
    endpoint_->expect_ended();
    honest_->expect_ended();
    endpoint_->end_receives();
    honest_->end_receives();
  }

  struct Run {
    uint64_t id = 0;
    size_t length = 0, at = 0;
    uint32_t number = 0;
  };
  fuzz::Input &input_;
  World world_;
  Settings settings_;
  std::unique_ptr<Side> endpoint_, honest_;
  uint32_t processes_ = 100;
  uint64_t time_left_ = 2'000'000'000;
  std::map<Link *, Run> runs_;
};

}  // namespace
}  // namespace weft::rxm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  weft::fuzz::Input input(data, size);
  weft::rxm::Play(input).run();
  return 0;
}
