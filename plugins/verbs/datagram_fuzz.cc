// SPDX-License-Identifier: BSD-2-Clause
// A datagram endpoint under attack, over the double. The input is a list of events:
//   * An attacker delivers datagrams with any header in front, any sender and any length: raw
//     bytes, headers that are nearly right, headers in the name of an honest peer.
//   * The application inserts names of any bytes and any text, removes them, sends to them, joins
//     and leaves groups of any name, and asks fi_getinfo for any name.
//   * Two honest peers send to the same endpoint and get messages from it all the time. They must
//     not notice: each of their messages arrives once, with its bytes and its source.
// Each receive ends once, within its buffer, and names a source that is in the address vector.
//
//   verbs_datagram_fuzz corpus/
#include <gtest/gtest.h>

#include <set>

#include "plugins/verbs/group.h"
#include "plugins/verbs/test_datagrams.h"
#include "tests/fuzz/check.h"

namespace weft::verbs {
namespace {

class Input {
 public:
  Input(const uint8_t *data, size_t size) : at_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  uint32_t word() {
    uint32_t value = byte();
    for (int i = 0; i < 3; ++i) value = value << 8 | byte();
    return value;
  }
  void fill(void *to, size_t size) {
    for (size_t i = 0; i < size; ++i) static_cast<uint8_t *>(to)[i] = byte();
  }
  std::string text() {
    std::string result(byte() % 80, '\0');
    fill(result.data(), result.size());
    return result.substr(0, result.find('\0'));
  }

 private:
  const uint8_t *at_;
  size_t left_;
};

constexpr size_t kReceives = 6, kRoom = 64, kGuard = 16;

// A receive with red zones behind its room.
class Posted {
 public:
  explicit Posted(DatagramSide &side) : buffer_(side, kRoom + kGuard) {}
  void post(DatagramSide &side) {
    std::memset(buffer_.start(), 0x5a, buffer_.size());
    FUZZ_CHECK(!posted, "a receive is posted twice");
    const ssize_t rc = fi_recv(side.ep, buffer_.start(), kDatagramHeader + kRoom, buffer_.desc(),
                               FI_ADDR_UNSPEC, this);
    FUZZ_CHECK(rc == 0, "a receive is refused");
    posted = true;
  }
  void end() {
    FUZZ_CHECK(posted, "a receive ends twice");
    posted = false;
    const std::string guard = buffer_.text(kRoom + kGuard).substr(kRoom);
    FUZZ_CHECK(guard == std::string(kGuard, 0x5a), "bytes behind the room of a receive");
  }
  std::string text(size_t n) const { return buffer_.text(n); }
  bool posted = false;

 private:
  DatagramBuffer buffer_;
};

class Attack {
 public:
  explicit Attack(Input &input)
      : input_(input), target_(node_), first_(node_), second_(node_), honest_{&first_, &second_} {
    for (size_t i = 0; i < 2; ++i) {
      at_target_[i] = target_.insert(*honest_[i]);
      to_target_[i] = honest_[i]->insert(target_);
      honest_in_[i] = std::make_unique<Posted>(*honest_[i]);
    }
    for (size_t i = 0; i < kReceives; ++i) receives_.push_back(std::make_unique<Posted>(target_));
  }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 200; ++steps) {
      step();
      take();
      honest_talk(size_t(steps) % 2);
      read_events();
    }
    for (fid_mc *const mc : groups_) FUZZ_CHECK(fi_close(&mc->fid) == 0, "a group stays");
  }

 private:
  void step() {
    switch (input_.byte() % 10) {
      case 0:
      case 1:
      case 2:
      case 3:
        return forge();
      case 4:
        return insert_bytes();
      case 5:
        return insert_text();
      case 6:
        return remove();
      case 7:
        return send();
      case 8:
        return join();
      default:
        return ask();
    }
  }

  // ---- the attacker

  static void set_checksum(uint8_t *ip) {
    ip[10] = ip[11] = 0;
    uint32_t sum = 0;
    for (size_t i = 0; i < 20; i += 2) sum += uint32_t(ip[i] << 8 | ip[i + 1]);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    ip[10] = uint8_t(~sum >> 8);
    ip[11] = uint8_t(~sum);
  }

  void forge() {
    verbs_double::ForgedDatagram forged;
    const uint8_t kind = input_.byte();
    const DatagramName honest = honest_[kind >> 7]->name();
    input_.fill(forged.header.data(), forged.header.size());
    switch (kind % 4) {
      case 0:
        break;  // any bytes
      case 1:   // IPv6
        forged.header[0] = uint8_t(0x60 | (forged.header[0] & 0xf));
        break;
      case 2:  // IPv4, at the end
        forged.header[20] = 0x45;
        set_checksum(forged.header.data() + 20);
        break;
      default:  // in the name of an honest peer, from a queue pair of the attacker's
        forged.header[0] = 0x60;
        std::memcpy(forged.header.data() + 8, honest.gid.raw, sizeof honest.gid.raw);
    }
    forged.has_route = (kind & 4) == 0;
    forged.has_immediate = (kind & 8) != 0;
    forged.source = kind & 16 ? input_.word() : honest.queue_pair + (input_.byte() & 3);
    // What the device says of the sender is true, so it never is an honest peer.
    for (const DatagramSide *const peer : honest_)
      if (forged.source == peer->name().queue_pair) forged.source ^= 0x800000;
    forged.lid = uint16_t(input_.word());
    forged.service_level = uint8_t(input_.byte() & 15);
    forged.bytes.resize(kind & 32 ? kRoom + input_.byte() : input_.byte() % (kRoom + 1), 'f');
    node_.device.deliver(target_.name().queue_pair, forged);
  }

  // ---- the application

  DatagramName any_name() {
    DatagramName name{};
    const uint8_t kind = input_.byte();
    if (kind & 1) name = honest_[kind >> 7]->name();  // an honest name, with changes
    if (kind & 2) input_.fill(&name.gid, sizeof name.gid);
    if (kind & 4) input_.fill(reinterpret_cast<char *>(&name) + 16, 8);
    if (kind & 8) input_.fill(reinterpret_cast<char *>(&name) + 24, 8);
    if (kind & 16) name.queue_pair = kGroupQueuePair;
    return name;
  }

  void keep(ssize_t inserted, fi_addr_t address) {
    if (inserted != 1) return;
    FUZZ_CHECK(address < 1000, "an index that no vector has");
    inserted_.push_back(address);
  }
  void insert_bytes() {
    const DatagramName name = any_name();
    fi_addr_t address = FI_ADDR_UNSPEC;
    const int rc = fi_av_insert(target_.av, &name, 1, &address, 0, nullptr);
    keep(rc, address);
  }
  void insert_text() {
    const std::string text = input_.text();
    fi_addr_t address = FI_ADDR_UNSPEC;
    const int rc = fi_av_insertsvc(target_.av, text.c_str(), nullptr, &address, 0, nullptr);
    keep(rc, address);
  }
  void remove() {
    if (inserted_.empty()) return;
    const size_t at = input_.byte() % inserted_.size();
    FUZZ_CHECK(fi_av_remove(target_.av, &inserted_[at], 1, 0) == 0, "an address stays");
    inserted_.erase(inserted_.begin() + ptrdiff_t(at));
  }
  fi_addr_t any_dest() {
    const uint8_t which = input_.byte();
    if (which < 32) return input_.word();
    if (which < 64) return kGroupBase + which % 4;
    if (which < 96 && !groups_.empty()) return fi_mc_addr(groups_[which % groups_.size()]);
    return inserted_.empty() ? FI_ADDR_UNSPEC : inserted_[which % inserted_.size()];
  }
  void send() {
    char message[kDatagramHeader + kRoom] = {};
    const fi_addr_t to = any_dest();
    // A message to an honest peer is one that it does not wait for.
    const ssize_t rc = fi_inject(target_.ep, message, sizeof message, to);
    FUZZ_CHECK(rc <= 0, "a send returns a count");
  }
  void join() {
    if (!groups_.empty() && input_.byte() < 80) {
      FUZZ_CHECK(fi_close(&groups_.back()->fid) == 0, "a group stays");
      groups_.pop_back();
      return;
    }
    const DatagramName name = any_name();
    fid_mc *mc = nullptr;
    if (fi_join(target_.ep, &name, input_.byte() % 4 * FI_RECV, &mc, nullptr) == 0)
      groups_.push_back(mc);
  }
  void ask() {
    fi_info hints{};
    hints.mode = FI_MSG_PREFIX;
    const std::string text = input_.text();
    DatagramName name = any_name();
    const uint8_t kind = input_.byte();
    hints.addr_format = kind & 1 ? FI_ADDR_STR : FI_ADDR_IB_UD;
    if (kind & 2) {
      hints.dest_addr = kind & 1 ? static_cast<void *>(const_cast<char *>(text.c_str())) : &name;
      hints.dest_addrlen = kind & 1 ? text.size() + 1 : sizeof name - (kind & 4 ? kind >> 3 : 0);
    }
    const auto list = target_.provider.getinfo({.node = kind & 8 ? text.c_str() : nullptr,
                                                .service = nullptr,
                                                .flags = kind & 16 ? FI_SOURCE : 0,
                                                .hints = &hints});
    FUZZ_CHECK(list || !list.error().text.empty(), "no reason");
  }

  // ---- what must be true

  // All that has ended is taken, and all receives are posted again.
  void take() {
    while (true) {
      fi_cq_data_entry entry{};
      fi_cq_err_entry error{};
      fi_addr_t source = FI_ADDR_UNSPEC;
      const ssize_t n = fi_cq_readfrom(target_.cq, &entry, 1, &source);
      if (n == -FI_EAGAIN) break;
      if (n == 1) {
        on_receive(entry, source);
        continue;
      }
      FUZZ_CHECK(n == -FI_EAVAIL && fi_cq_readerr(target_.cq, &error, 0) == 1, "no error entry");
      FUZZ_CHECK(error.err != 0, "an error entry without an error");
      if (error.flags & FI_RECV) static_cast<Posted *>(error.op_context)->end();
    }
    for (auto &receive : receives_)
      if (!receive->posted) receive->post(target_);
  }

  void on_receive(const fi_cq_data_entry &entry, fi_addr_t source) {
    FUZZ_CHECK(entry.flags & FI_RECV, "a transmit completes that did not ask for it");
    Posted &receive = *static_cast<Posted *>(entry.op_context);
    receive.end();
    FUZZ_CHECK(entry.len >= kDatagramHeader && entry.len <= kDatagramHeader + kRoom, "a length");
    const std::string text = receive.text(entry.len - kDatagramHeader);
    if (source != FI_ADDR_NOTAVAIL) {
      char name[64];
      size_t size = sizeof name;
      FUZZ_CHECK(fi_av_lookup(target_.av, source, name, &size) == 0, "a source that nobody named");
    }
    const bool honest = text.starts_with("honest");
    for (size_t i = 0; i < 2; ++i)
      FUZZ_CHECK(honest || source != at_target_[i] || text.find_first_not_of('\0') == text.npos,
                 "a forged datagram passes as that of an honest peer");
    if (!honest) return;
    arrived_.push_back(text);
    arrived_from_ = source;
  }

  // A message of an honest peer, and the answer to it.
  void honest_talk(size_t which) {
    DatagramSide &peer = *honest_[which];
    const std::string text = "honest " + std::to_string(++number_);
    char message[kDatagramHeader + kRoom] = {};
    std::memcpy(message + kDatagramHeader, text.data(), text.size());
    const size_t size = kDatagramHeader + text.size();
    arrived_.clear();
    FUZZ_CHECK(fi_inject(peer.ep, message, size, to_target_[which]) == 0, "an honest send");
    take();
    FUZZ_CHECK(arrived_.size() == 1 && arrived_[0] == text, "an honest message is lost");
    FUZZ_CHECK(is_name_of(arrived_from_, peer), "an honest message has another source");
    drain(peer);
    if (!honest_in_[which]->posted) honest_in_[which]->post(peer);
    FUZZ_CHECK(fi_inject(target_.ep, message, size, at_target_[which]) == 0, "an answer");
    const auto received = peer.try_completion();
    FUZZ_CHECK(received && received->entry.op_context == honest_in_[which].get(), "a lost answer");
    honest_in_[which]->end();
    FUZZ_CHECK(honest_in_[which]->text(text.size()) == text, "a changed answer");
  }

  // The application may have inserted the same queue pair again.
  bool is_name_of(fi_addr_t source, const DatagramSide &peer) {
    DatagramName name{};
    size_t size = sizeof name;
    if (source == FI_ADDR_NOTAVAIL || fi_av_lookup(target_.av, source, &name, &size) != 0)
      return false;
    const DatagramName own = peer.name();
    return name.queue_pair == own.queue_pair &&
           std::memcmp(&name.gid, &own.gid, sizeof own.gid) == 0;
  }

  // What the application under attack sent to an honest peer has taken its receive.
  void drain(DatagramSide &peer) {
    while (const auto other = peer.try_completion())
      static_cast<Posted *>(other->entry.op_context)->end();
  }

  void read_events() {
    fi_eq_entry entry{};
    fi_eq_err_entry error{};
    uint32_t event = 0;
    ssize_t n;
    while ((n = fi_eq_read(target_.eq, &event, &entry, sizeof entry, 0)) != -FI_EAGAIN)
      FUZZ_CHECK(n > 0 || fi_eq_readerr(target_.eq, &error, 0) > 0, "no event");
  }

  Input &input_;
  TestNode node_;
  DatagramSide target_, first_, second_;
  DatagramSide *const honest_[2];
  fi_addr_t at_target_[2], to_target_[2];
  std::unique_ptr<Posted> honest_in_[2];
  std::vector<std::unique_ptr<Posted>> receives_;
  std::vector<fi_addr_t> inserted_;
  std::vector<fid_mc *> groups_;
  std::vector<std::string> arrived_;
  fi_addr_t arrived_from_ = FI_ADDR_NOTAVAIL;
  unsigned number_ = 0;
};

}  // namespace
}  // namespace weft::verbs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::verbs;
  static const bool ready = [] {
    int argc = 1;
    char name[] = "verbs_datagram_fuzz", *argv[] = {name, nullptr};
    testing::InitGoogleTest(&argc, argv);
    GTEST_FLAG_SET(break_on_failure, true);  // of the harness
    return true;
  }();
  if (!ready) return 1;
  Input input(data, size);
  Attack attack(input);
  attack.run();
  return 0;
}
