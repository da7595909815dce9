// SPDX-License-Identifier: BSD-2-Clause
// Peers that are killed at any time, from seeds: each operation that was under way ends, once, what
// arrives is right and in order, memory that nobody may write stays as it is, other peers go on,
// and nothing is left of the dead one.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kKillLengths[] = {0, 1, 100, 217, 4096, 16'385, 70'000};
constexpr size_t kKillRoom = 70'000, kMostUnderWay = 32, kReceivesPosted = 8;
constexpr size_t kGreetingLength = 20'000;
constexpr unsigned kGreeting = 5;  // the seed of its pattern

// What a process lets its peers read and write: a part that stays as it is, one for writes, and one
// number for atomic operations.
struct KillWindow {
  static constexpr size_t kPart = 32 << 10;
  explicit KillWindow(Node &node) : bytes(pattern(2 * kPart, 77)) {
    bytes.resize(bytes.size() + sizeof(uint64_t));
    region =
        node.expose(bytes.data(), bytes.size(),
                    FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE | FI_SEND | FI_RECV, 42);
    base = node.base_of(bytes.data());
  }
  bool is_as_it_was() const {
    const std::vector<uint8_t> first = pattern(kPart, 77);
    return std::memcmp(bytes.data(), first.data(), kPart) == 0;
  }
  std::vector<uint8_t> bytes;
  fid_mr *region;
  uint64_t base;
};

// Where the peer's window is.
struct KillTarget {
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  uint64_t base = 0, key = 0;
};

// An endpoint that does random operations toward one peer at a time, and receives from all.
class KillParty : public Driver {
 public:
  explicit KillParty(const Options &options) : node(options), window(node) {}
  void progress() override {
    node.progress();
    drain(node.tx_cq);
    drain(node.rx_cq);
  }
  // The next operations are toward this peer; tags are `life` and a number that counts up.
  void turn_to(const KillTarget &target, uint32_t life, unsigned seed) {
    target_ = target;
    life_ = life;
    number_ = 0;
    random_.seed(seed);
  }
  void step() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        return start(Kind::kSend);
      case 3:
        return start(below(2) == 0 ? Kind::kRead : Kind::kWrite);
      case 4:
        return start(node.options.caps & FI_ATOMIC ? Kind::kAtomic : Kind::kWrite);
      case 5:
        return receive();
      default:
        progress();
    }
  }
  // A message without a tag, for which somebody waits who is not killed.
  void await_greeting() {
    OpPtr op = make(Kind::kGreeting);
    must(fi_recv(node.ep, op->bytes.data(), op->bytes.size(), nullptr, FI_ADDR_UNSPEC, op.get()));
    keep(std::move(op));
  }
  size_t below(size_t limit) { return random_() % limit; }
  size_t under_way() const { return under_way_; }

  Node node;
  KillWindow window;

 private:
  enum class Kind { kReceive, kGreeting, kSend, kRead, kWrite, kAtomic };
  struct Op {
    Kind kind;
    bool is_over = false;
    uint64_t tag = 0;
    std::vector<uint8_t> bytes;
    int err = 0;
  };
  using OpPtr = std::unique_ptr<Op>;

  OpPtr make(Kind kind) {
    auto op = std::make_unique<Op>();
    op->kind = kind;
    op->tag = uint64_t(life_) << 32 | number_;
    const size_t length = kKillLengths[below(std::size(kKillLengths))];
    if (kind == Kind::kSend) op->bytes = pattern(length, number_);
    if (kind == Kind::kRead) op->bytes.resize(std::min(length, KillWindow::kPart));
    if (kind == Kind::kWrite) op->bytes = pattern(std::min(length, KillWindow::kPart), number_);
    if (kind == Kind::kGreeting) op->bytes.resize(kGreetingLength);
    if (kind == Kind::kAtomic) op->bytes.assign(sizeof(uint64_t), 1);
    return op;
  }

  ssize_t call(Op &op) {
    void *const bytes = op.bytes.data();
    const size_t n = op.bytes.size();
    const auto [to, base, key] = target_;
    switch (op.kind) {
      case Kind::kSend:
        return fi_tsend(node.ep, bytes, n, nullptr, to, op.tag, &op);
      case Kind::kRead:
        return fi_read(node.ep, bytes, n, nullptr, to, base, key, &op);
      case Kind::kWrite:
        return fi_write(node.ep, bytes, n, nullptr, to, base + KillWindow::kPart, key, &op);
      default:
        return fi_atomic(node.ep, bytes, 1, nullptr, to, base + 2 * KillWindow::kPart, key,
                         FI_UINT64, FI_SUM, &op);
    }
  }

  void start(Kind kind) {
    if (under_way_ >= kMostUnderWay) return progress();
    OpPtr op = make(kind);
    if (call(*op) != 0) return progress();  // no room, or the peer is known to be gone
    if (kind == Kind::kSend) ++number_;
    keep(std::move(op));
  }

  void keep(OpPtr op) {
    ++under_way_;
    Op *const place = op.get();
    ops_[place] = std::move(op);
  }

  void receive() {
    if (receives_.size() >= kReceivesPosted) return progress();
    auto op = std::make_unique<Op>();
    op->kind = Kind::kReceive;
    op->bytes.resize(kKillRoom);
    if (fi_trecv(node.ep, op->bytes.data(), kKillRoom, nullptr, FI_ADDR_UNSPEC, 0, ~UINT64_C(0),
                 op.get()) != 0)
      return progress();
    receives_.push_back(std::move(op));
  }

  void drain(fid_cq *cq) {
    while (const auto done = poll(cq)) end(*done);
  }

  void end(const Completion &done) {
    const auto at = ops_.find(done.context);
    if (at == ops_.end()) return end_receive(done);
    const Op &op = *at->second;
    if (op.kind == Kind::kRead && done.err == 0) {
      EXPECT_EQ(std::memcmp(op.bytes.data(), window.bytes.data(), op.bytes.size()), 0)
          << "a read of " << op.bytes.size() << " bytes";
    }
    if (op.kind == Kind::kGreeting) {
      EXPECT_EQ(done.err, 0);
      EXPECT_EQ(op.bytes, pattern(kGreetingLength, kGreeting));
    }
    --under_way_;
    ops_.erase(at);
  }

  void end_receive(const Completion &done) {
    const auto is_it = [&](const OpPtr &op) { return op.get() == done.context && !op->is_over; };
    const auto at = std::find_if(receives_.begin(), receives_.end(), is_it);
    if (at == receives_.end()) {
      ADD_FAILURE() << "an operation ends that is not under way";
      return;
    }
    Op &op = **at;
    op.is_over = true;
    op.err = done.err;
    op.tag = done.tag;
    if (done.err == 0) check(op, done.len);
    while (!receives_.empty() && receives_.front()->is_over) {
      check_order(*receives_.front());
      receives_.pop_front();
    }
  }

  void check(const Op &op, size_t length) {
    const std::vector<uint8_t> sent = pattern(length, uint32_t(op.tag));
    EXPECT_EQ(std::memcmp(op.bytes.data(), sent.data(), length), 0)
        << "message " << uint32_t(op.tag) << " of " << length << " bytes";
  }

  // Receives are used in the order in which they were posted, and messages come in that of sending.
  void check_order(const Op &op) {
    if (op.err != 0) return;
    const auto life = uint32_t(op.tag >> 32), number = uint32_t(op.tag);
    const auto next = next_.find(life);
    if (next != next_.end()) {
      EXPECT_GE(number, next->second) << "of life " << life;
    }
    next_[life] = number + 1;
  }

  std::mt19937 random_;
  KillTarget target_;
  uint32_t life_ = 0, number_ = 0;
  size_t under_way_ = 0;
  std::map<void *, OpPtr> ops_;
  std::deque<OpPtr> receives_;
  std::map<uint32_t, uint32_t> next_;  // the least number that may come, by life
};

Options options_of_kills() {
  Options options;
  options.caps |= FI_RMA | FI_ATOMIC;
  options.tx_size = 64;
  if (!unconnected::offers(options, FI_ATOMIC)) options.caps &= ~FI_ATOMIC;
  return options;
}

KillTarget meet(KillParty &party, int socket) {
  KillTarget target;
  target.to = party.node.insert(hear_text(socket));
  target.base = hear(socket);
  target.key = hear(socket);
  return target;
}

void introduce(const KillParty &party, int socket) {
  tell_text(socket, party.node.name());
  tell(socket, party.window.base);
  tell(socket, fi_mr_key(party.window.region));
}

// Calls until it is killed.
void live(int socket, unsigned seed) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  KillParty party(options_of_kills());
  tell(socket, uint64_t(::getpid()));
  introduce(party, socket);
  party.turn_to(meet(party, socket), seed, ~seed);
  tell(socket, 1);
  for (;;) party.step();
}

// A process that never uses the library makes those that are killed, one for each seed, and tells
// how each has ended.
void nurse(int socket) {
  while (const auto seed = unsigned(hear(socket))) {
    const pid_t pid = ::fork();
    if (pid == 0) live(socket, seed);
    int status = 0;
    ::waitpid(pid, &status, 0);
    tell(socket, WIFSIGNALED(status) ? uint64_t(WTERMSIG(status)) : 0);
  }
}

// Somebody who is not killed.
struct Witness : Driver {
  explicit Witness(const KillParty &party) : to(node.insert(party.node.name())) {}
  void progress() override { node.progress(); }
  Node node{Options()};
  const std::vector<uint8_t> greeting = pattern(kGreetingLength, kGreeting);
  const fi_addr_t to;
};

// One peer, from its start to its end and the end of all that was under way.
void outlive(KillParty &party, Witness &witness, int nurse, unsigned seed) {
  SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(seed));
  tell(nurse, seed);
  const auto pid = pid_t(hear(nurse));
  KillTarget target = meet(party, nurse);
  introduce(party, nurse);
  hear(nurse);
  party.turn_to(target, seed, seed);
  const auto go_on = [&](size_t most) {
    for (size_t left = party.below(most); left != 0; --left) party.step();
  };
  go_on(1000);
  if (party.below(3) == 0) {
    ::kill(pid, SIGSTOP);
    go_on(50);
  }
  ::kill(pid, SIGKILL);
  go_on(50);
  party.await_greeting();
  witness.post([&] {
    return fi_send(witness.node.ep, witness.greeting.data(), kGreetingLength, nullptr, witness.to,
                   nullptr);
  });
  EXPECT_EQ(hear(nurse), uint64_t(SIGKILL)) << "it has ended by itself";
  size_t greeted = 0;
  EXPECT_TRUE(party.until([&] {
    while (poll(witness.node.tx_cq)) ++greeted;
    witness.progress();
    return party.under_way() == 0 && greeted == 1;
  })) << party.under_way()
      << " operations do not end";
  EXPECT_TRUE(party.window.is_as_it_was());
  must(fi_av_remove(party.node.av, &target.to, 1, 0));
}

// Ten of them, or as many as WEFT_TEST_SEEDS says, or WEFT_TEST_SEED alone. A process of the test
// has so many that it ends soon, and that what it leaves behind with each would be seen.
constexpr unsigned kSeedsOfAProcess = 50;
struct KillSeeds {
  unsigned first, end;
};
void PrintTo(const KillSeeds &seeds, std::ostream *out) {
  *out << seeds.first << " to " << seeds.end - 1;
}
std::vector<KillSeeds> seeds_of_kills() {
  if (const char *seed = std::getenv("WEFT_TEST_SEED"))
    return {{unsigned(std::atoi(seed)), unsigned(std::atoi(seed)) + 1}};
  const char *text = std::getenv("WEFT_TEST_SEEDS");
  const unsigned count = text != nullptr ? unsigned(std::atoi(text)) : 10;
  std::vector<KillSeeds> all;
  for (unsigned first = 1; first <= count; first += kSeedsOfAProcess)
    all.push_back({first, std::min(first + kSeedsOfAProcess, count + 1)});
  return all;
}

struct RdmKill : ::testing::TestWithParam<KillSeeds> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RdmKill, ::testing::ValuesIn(seeds_of_kills()));

TEST_P(RdmKill, AnythingUnderWayEnds) {
  covers("errors of dead peers");
  NEEDS_PROCESSES();
  if (!in_fresh_process({kNoControl})) return;
  Child nursery(nurse);
  RDM_NEEDS(FI_RMA);
  KillParty party(options_of_kills());
  Witness witness(party);
  const auto [first, end] = GetParam();
  int before = 0;
  for (unsigned seed = first; seed != end && !HasFailure(); ++seed) {
    outlive(party, witness, nursery.socket(), seed);
    if (seed <= (first + end) / 2) before = std::max(before, count_descriptors());
  }
  EXPECT_TRUE(party.until([&] { return count_descriptors() <= before; }))
      << count_descriptors() << " descriptors, at most " << before << " in the first half";
  tell(nursery.socket(), 0);
  nursery.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
