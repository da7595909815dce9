// SPDX-License-Identifier: BSD-2-Clause
// A whole endpoint of cxi over the NIC in software. The input is a list of events:
//   * The application posts and cancels receives, looks at messages, starts operations, opens and
//     closes regions, and reads its completions or not.
//   * Two liars, one of them in the address vector, send any packet to any portal, whole or in
//     pieces, answer what they are asked as they like or not at all, and come back.
//   * An honest endpoint exchanges messages with the same endpoint. The liars must not affect
//     them: each arrives once and whole.
// After the liars are gone, every operation must end. Memory that the endpoint has given back is
// poisoned: AddressSanitizer sees who touches it.
//
//   cxi_fuzz corpus/      // WEFT_FUZZ_LOG=1: prints warnings
#include <time.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "plugins/cxi/fuzz/node.h"
#include "tests/fuzz/world.h"

namespace {

uint64_t now = 1'000'000'000;  // ns

}  // namespace

// Each look at the clock takes a while, so that who waits for a time comes to it.
extern "C" int __wrap_clock_gettime(clockid_t, timespec *out);
extern "C" int __wrap_clock_gettime(clockid_t, timespec *out) {
  now += 200'000;
  out->tv_sec = time_t(now / 1'000'000'000u);
  out->tv_nsec = long(now % 1'000'000'000u);
  return 0;
}

namespace weft::cxi::fuzz {
namespace {

using weft::fuzz::Input;

constexpr Nid kNamed = 3, kStranger = 4;
constexpr size_t kMostBytes = 3000, kMostWork = 60;
constexpr uint64_t kLetterTag = 0x1000;  // and up; receives for liars do not want it
constexpr uint64_t kMillisecond = 1'000'000;

// A message between honest endpoints. Its first bytes are its number.
struct Letter {
  bool to_target = false;
  std::vector<uint8_t> bytes;
  int arrived = 0;
  bool posted = false;
};

// What an application has asked for, and not been told the end of.
struct Work {
  uint8_t *memory = nullptr;
  size_t length = 0;
  bool is_receive = false, is_multi = false, is_letter = false;
  std::vector<std::pair<size_t, size_t>> parts;  // that were told of
};

struct Application {
  Application(Network &network, Nid nid, const Settings &settings) : node(network, nid, settings) {}
  Work &begin(size_t length, uint8_t fill) {
    Work &work = works.emplace_back();
    work.memory = memory.lend(length, fill);
    work.length = length;
    return work;
  }
  void end(Work &work) {
    memory.take_back(work.memory);
    works.remove_if([&](const Work &one) { return &one == &work; });
  }
  // A call was made for it, or could not.
  void check(ssize_t rc, Work &work) {
    FUZZ_CHECK(rc == 0 || rc == -FI_EAGAIN, "a call has failed");
    if (rc != 0) end(work);
  }

  weft::fuzz::Memory memory;
  std::list<Work> works;
  Node node;
};

Settings settings_of(uint8_t how) {
  Settings s = small_settings();
  s.match_mode = MatchMode((how >> 1 & 3) % 3);
  s.alt_read = how & 8;
  s.prov_key_cache = how & 32;
  s.mr_match_events = how & 64;
  s.msg_lossless = how & 128;
  return s;
}

class Test {
 public:
  explicit Test(Input &input)
      : input_(input),
        how_(input.byte()),
        network_((how_ & 16) != 0 ? 80 : 400),
        target_(network_, kTarget, (network_.is_plain = (how_ & 1) != 0, settings_of(how_))),
        honest_(network_, kHonest, small_settings()) {
    honest_address_ = target_.node.insert(honest_.node.name());
    target_address_ = honest_.node.insert(target_.node.name());
    liar_address_ = target_.node.insert({.nid = kNamed, .pid = 0, .vni = kVni});
  }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 300; ++steps) {
      step();
      for (Liar *const liar : {&named_, &stranger_}) {
        liar->hear();
        liar->answers.clear();
      }
    }
    settle();
  }

 private:
  void step() {
    const uint8_t what = input_.byte();
    Liar &liar = (what & 128) != 0 ? named_ : stranger_;
    switch (what % 16) {
      case 0:
      case 1:
      case 2:
        return packet(liar);
      case 3: {
        const auto raw = input_.take(input_.byte());
        return liar.say_bytes(raw);
      }
      case 4:
      case 5:
        return answer(liar);
      case 6:
        liar.leave();
        return liar.connect();
      case 7:
      case 8:
        return post();
      case 9:
        return look();
      case 10:
        return cancel();
      case 11:
        return operate();
      case 12:
        return region();
      case 13:
        return write_letter();
      case 14:
        now += input_.byte() * 10 * kMillisecond;
        return;
      default:
        reads_ = (input_.byte() & 7) != 0;
        return read();
    }
  }

  // ---- the liars ----

  uint64_t match_bits() {
    const uint8_t kind = input_.byte();
    switch (kind % 8) {
      case 0:
        return kTagged | input_.byte() % 8;
      case 1:
        return kTagged | kLetterTag;
      case 2:
        return input_.byte() % 2 != 0 ? kHasData : 0;
      case 3:
        return ControlBits{ControlType(kind >> 4 & 3), uint16_t(input_.byte() % 4)}.bits();
      case 4:
        return MessageBits{kTagged}.with_transaction(input_.byte() % 4).bits;
      case 5:
        return MessageBits{(kind & 8) != 0 ? kTagged | kind >> 5 : 0}
            .with_rendezvous(input_.byte() % 2, 0, kind >> 4 & 1)
            .bits;
      case 6:
        return region_ != nullptr ? fi_mr_key(region_) & ~kProviderKey : input_.byte();
      default:
        return uint64_t{input_.number(4)} << 32 | input_.number(4);
    }
  }

  void packet(Liar &liar) {
    static constexpr Index kIndices[] = {
        kReceiveIndex, kReceiveIndex,
        kReceiveIndex, kReceiveIndex,
        kRnrIndex,     kCollectiveIndex,
        kWriteIndex,   Index(kOptimizedWriteIndex + kFirstProviderId),
        kDoneIndex,    Index(kOptimizedReadIndex + kFirstProviderId),
        kReadIndex,    kRendezvousIndex};
    const uint8_t how = input_.byte();
    Packet said = liar.packet(
        Op(1 + how % 5),
        {.nid = kTarget, .pid = target_.node.name().pid, .index = kIndices[input_.byte() % 12]});
    said.initiator = (how & 128) != 0 ? match_id(how >> 5 & 1, kLogical | input_.byte() % 4)
                                      : match_id(how >> 5 & 1, liar.nid());
    said.match_bits = match_bits();
    said.header_data = input_.byte();
    said.rendezvous_id = input_.byte() % 4;
    said.length = input_.number(1 + (how >> 6 & 1)) % kMostBytes;
    if (said.op == Op::kRendezvousPut) {
      said.eager_length = input_.byte() % (said.length + 1);
      if (input_.byte() % 8 == 0) said.length = UINT32_MAX - input_.byte();
    }
    const uint8_t where = input_.byte();
    if (where >= 128) said.remote_offset = where >= 192 ? UINT64_MAX - where : where;
    const bool is_theft = where == 191 && !target_.works.empty() && target_.works.front().is_letter;
    if (is_theft) said.remote_offset = reinterpret_cast<uintptr_t>(target_.works.front().memory);
    if (said.op == Op::kAtomic || said.op == Op::kFetchAtomic) {
      said.amo_op = AmoOp(input_.byte() % 16);
      said.amo_type = input_.byte() % 2 != 0 ? AmoType::kUint64 : AmoType(input_.byte() % 16);
      if (said.amo_type == AmoType::kUint64) said.length = 8;
      said.remote_offset &= ~uint64_t{7};
    }
    liar.say(said, input_.take(input_.byte() % 32));
    if (!is_theft || said.op != Op::kGet) return;
    liar.hear();
    for (const auto &[token, reply] : liar.answers)
      FUZZ_CHECK(token != liar.last_token() || reply.rc != Rc::kOk || reply.mlength == 0,
                 "a liar reads what is for somebody else");
  }

  void answer(Liar &liar) {
    if (liar.asked.empty()) return;
    const size_t which = input_.byte() % liar.asked.size();
    const uint8_t how = input_.byte();
    uint32_t length = liar.asked[which].length;
    if ((how & 3) == 3) length = input_.number(2) % kMostBytes;
    length = std::min<uint32_t>(length, kMostBytes);
    const Rc rc = (how & 12) == 12 ? Rc(input_.byte()) : Rc::kOk;
    const bool brings = liar.asked[which].op == Op::kGet || (how & 16) != 0;
    liar.answer(which, rc, length,
                brings ? std::vector<uint8_t>(length, how) : std::vector<uint8_t>());
  }

  // ---- the application ----

  void post() {
    if (target_.works.size() >= kMostWork) return;
    const uint8_t how = input_.byte();
    Work &work = target_.begin(1 + input_.number(1 + (how & 1)) % kMostBytes, how);
    work.is_receive = true;
    work.is_multi = (how & 6) == 6;
    const iovec all{work.memory, work.length};
    const fi_addr_t from = (how & 8) != 0 ? liar_address_ : FI_ADDR_UNSPEC;
    if (work.is_multi || (how & 16) != 0) {
      fi_msg message{};
      message.msg_iov = &all;
      message.iov_count = 1;
      message.addr = from;
      message.context = &work;
      return target_.check(fi_recvmsg(target_.node.ep, &message, work.is_multi ? FI_MULTI_RECV : 0),
                           work);
    }
    target_.check(fi_trecv(target_.node.ep, work.memory, work.length, nullptr, from, how >> 5,
                           (how & 32) != 0 ? 7 : 0, &work),
                  work);
  }

  // FI_PEEK, which may claim or discard what it finds, and a receive for what was claimed.
  void look() {
    if (target_.works.size() >= kMostWork) return;
    const uint8_t how = input_.byte();
    const bool takes = !claimed_.empty();
    Work &work = takes ? *claimed_.back() : target_.begin(200, how);
    work.is_receive = true;
    const iovec all{work.memory, work.length};
    fi_msg_tagged message{};
    message.msg_iov = &all;
    message.iov_count = takes ? 1 : 0;
    message.addr = liar_address_;
    message.ignore = 7;
    message.context = &work;
    const uint64_t flags = takes ? FI_CLAIM | ((how & 1) != 0 ? FI_DISCARD : 0)
                                 : FI_PEEK | ((how & 1) != 0   ? FI_CLAIM
                                              : (how & 2) != 0 ? FI_DISCARD
                                                               : 0);
    const ssize_t rc = fi_trecvmsg(target_.node.ep, &message, flags);
    if (takes && rc != 0) return;
    if (takes) claimed_.pop_back();
    if (rc != 0) return target_.check(rc, work);
    if (!takes && (flags & FI_CLAIM) != 0) claims_.insert(&work);
  }

  void cancel() {
    if (target_.works.empty()) return;
    auto at = target_.works.begin();
    std::advance(at, input_.byte() % target_.works.size());
    if (!at->is_letter) (void)fi_cancel(&target_.node.ep->fid, &*at);
  }

  // To a liar.
  void operate() {
    if (target_.works.size() >= kMostWork) return;
    const uint8_t how = input_.byte();
    fid_ep *const ep = target_.node.ep;
    const size_t length = 8 + input_.number(1 + (how >> 3 & 1)) % kMostBytes;
    Work &work = target_.begin(length, how);
    const iovec all{work.memory, work.length};
    const uint64_t key = how >> 4;
    switch (how % 6) {
      case 0:
        return target_.check(
            fi_tsend(ep, work.memory, work.length, nullptr, liar_address_, how >> 4, &work), work);
      case 1:
      case 2: {
        fi_msg message{};
        message.msg_iov = &all;
        message.iov_count = 1;
        message.addr = liar_address_;
        message.context = &work;
        return target_.check(
            fi_sendmsg(ep, &message, FI_COMPLETION | (how % 6 == 1 ? FI_MATCH_COMPLETE : 0)), work);
      }
      case 3:
        return target_.check(
            fi_write(ep, work.memory, work.length, nullptr, liar_address_, 0, key, &work), work);
      case 4:
        return target_.check(
            fi_read(ep, work.memory, work.length, nullptr, liar_address_, 0, key, &work), work);
      default:
        return target_.check(
            fi_atomic(ep, work.memory, 1, nullptr, liar_address_, 0, key, FI_UINT64, FI_SUM, &work),
            work);
    }
  }

  // Which the liars know.
  void region() {
    if (region_ != nullptr) {
      succeed(fi_close(&region_->fid));
      region_ = nullptr;
      return target_.memory.take_back(region_memory_);
    }
    const uint8_t how = input_.byte();
    region_memory_ = target_.memory.lend(64, how);
    region_ = target_.node.open_region(
        region_memory_, 64,
        (how & 1 ? FI_REMOTE_WRITE : 0) | (how & 2 ? FI_REMOTE_READ : 0) | FI_READ);
    if (region_ == nullptr) target_.memory.take_back(region_memory_);
  }

  // ---- messages between honest endpoints ----

  void write_letter() {
    if (letters_.size() >= 40) return;
    const uint8_t how = input_.byte();
    Letter letter{.to_target = (how & 1) != 0, .bytes = {}};
    letter.bytes.assign(2 + input_.number(1 + (how >> 1 & 1)) % kMostBytes, uint8_t(how | 1));
    letter.bytes[0] = uint8_t(letters_.size());
    letter.bytes[1] = 0;
    Application &from = letter.to_target ? honest_ : target_;
    Work &work = from.begin(letter.bytes.size(), 0);
    work.is_letter = true;
    std::copy(letter.bytes.begin(), letter.bytes.end(), work.memory);
    const ssize_t rc = fi_tsend(from.node.ep, work.memory, work.length, nullptr,
                                letter.to_target ? target_address_ : honest_address_,
                                kLetterTag + letters_.size(), &work);
    from.check(rc, work);
    if (rc != 0) return;
    letters_.push_back(std::move(letter));
    if ((how & 4) != 0) receive(letters_.size() - 1);
  }
  void receive(size_t number) {
    Letter &letter = letters_[number];
    Application &to = letter.to_target ? target_ : honest_;
    Work &work = to.begin(letter.bytes.size(), 0);
    work.is_receive = work.is_letter = true;
    const ssize_t rc = fi_trecv(to.node.ep, work.memory, work.length, nullptr,
                                letter.to_target ? honest_address_ : target_address_,
                                kLetterTag + number, 0, &work);
    to.check(rc, work);
    letter.posted = rc == 0;
  }

  // ---- completions ----

  void read() {
    drain(honest_, target_address_);
    if (reads_) drain(target_, honest_address_);
  }
  void drain(Application &application, fi_addr_t friend_of) {
    while (const auto one = application.node.poll()) told(application, *one, friend_of);
  }
  void told(Application &application, const Completion &c, fi_addr_t friend_of) {
    const auto found = std::ranges::find_if(application.works,
                                            [&](const Work &work) { return &work == c.context; });
    FUZZ_CHECK(found != application.works.end(), "a completion of what has ended");
    Work &work = *found;
    if (work.is_receive && c.err == 0 && c.length != 0)
      check_bytes(application, work, c, friend_of);
    if (claims_.erase(&work) != 0 && c.err == 0) {
      claimed_.push_back(&work);
      return;
    }
    const bool ends = !work.is_multi || (c.flags & FI_MULTI_RECV) != 0 || c.err == FI_ECANCELED;
    if (ends) application.end(work);
  }
  void check_bytes(Application &application, Work &work, const Completion &c, fi_addr_t friend_of) {
    const uint8_t *const bytes = work.is_multi ? c.buf : work.memory;
    if (claims_.contains(&work)) return;  // a look: nothing has come
    FUZZ_CHECK(bytes >= work.memory, "a message before its buffer");
    const size_t at = size_t(bytes - work.memory);
    if (!application.memory.holds(bytes, c.length)) {
      FUZZ_CHECK(!work.is_multi && c.length > work.length && c.source != friend_of,
                 "a message beyond its buffer");
      return;  // a look that claims nothing tells the length
    }
    FUZZ_CHECK(at + c.length <= work.length, "a message beyond its buffer");
    for (const auto &[from, to] : work.parts)
      FUZZ_CHECK(at >= to || at + c.length <= from, "two messages in one place");
    work.parts.emplace_back(at, at + c.length);
    if (c.source != friend_of) return;
    FUZZ_CHECK(bytes[0] < letters_.size(), "a message that nobody has sent");
    Letter &letter = letters_[bytes[0]];
    FUZZ_CHECK(letter.to_target == (&application == &target_), "a message for somebody else");
    FUZZ_CHECK(c.length == letter.bytes.size() &&
                   std::equal(letter.bytes.begin(), letter.bytes.end(), bytes),
               "a message with other bytes");
    ++letter.arrived;
  }

  // ---- the end ----

  // The liars are gone. Whoever is left takes all that has come.
  void settle() {
    named_.leave();
    stranger_.leave();
    reads_ = true;
    for (int tries = 0; tries < 600 && !is_settled(); ++tries) {
      now += 50 * kMillisecond;
      read();
      for (size_t i = 0; i < letters_.size(); ++i)
        if (!letters_[i].posted && letters_[i].arrived == 0) receive(i);
      if (tries % 4 == 0) take_any();
    }
    for (const Letter &letter : letters_)
      FUZZ_CHECK(letter.arrived == 1, "a message between honest endpoints has not arrived");
    for (Application *const one : {&target_, &honest_}) {
      for (Work &work : one->works)
        if (work.is_receive) (void)fi_cancel(&one->node.ep->fid, &work);
      for (int tries = 0; tries < 400 && !one->works.empty(); ++tries) {
        now += 50 * kMillisecond;
        read();
        for (Work *const work : std::exchange(claimed_, {})) target_.end(*work);
      }
      FUZZ_CHECK(one->works.empty(), "an operation does not end");
    }
    const uint64_t before = now;
    if (region_ != nullptr) region();
    FUZZ_CHECK(now - before < 4'000 * kMillisecond, "a region is in use, and nobody uses it");
  }
  bool is_settled() const {
    const auto sends = [](const Work &work) { return !work.is_receive; };
    return std::ranges::all_of(letters_, [](const Letter &one) { return one.arrived == 1; }) &&
           std::ranges::none_of(target_.works, sends) && std::ranges::none_of(honest_.works, sends);
  }
  // What liars have left.
  void take_any() {
    if (target_.works.size() >= kMostWork) return;
    for (const bool tagged : {false, true}) {
      Work &work = target_.begin(kMostBytes + 2, 0);
      work.is_receive = work.is_letter = true;
      target_.check(tagged ? fi_trecv(target_.node.ep, work.memory, work.length, nullptr,
                                      FI_ADDR_UNSPEC, 0, (uint64_t{1} << kTagBits) - 1, &work)
                           : fi_recv(target_.node.ep, work.memory, work.length, nullptr,
                                     FI_ADDR_UNSPEC, &work),
                    work);
    }
  }

  Input &input_;
  const uint8_t how_;
  Network network_;
  Application target_, honest_;
  Liar named_{network_, kNamed}, stranger_{network_, kStranger};
  fi_addr_t honest_address_, target_address_, liar_address_;
  bool reads_ = true;
  std::vector<Letter> letters_;
  std::set<const Work *> claims_;  // looks that claim
  std::vector<Work *> claimed_;    // those that have found something
  fid_mr *region_ = nullptr;
  uint8_t *region_memory_ = nullptr;
};

}  // namespace
}  // namespace weft::cxi::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  now = 1'000'000'000;
  weft::fuzz::Input input(data, size);
  weft::cxi::fuzz::Test test(input);
  test.run();
  return 0;
}
