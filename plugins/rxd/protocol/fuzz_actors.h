// SPDX-License-Identifier: BSD-2-Clause
// Relay and Thief: what endpoint_fuzz.cc has beside its strangers. Both keep to the protocol, and
// neither has the honest endpoints' auth_key.
//
// Example (statements):
//    World world;
//    world.pair.acted = true;
//    world.add(kTarget, {});
//    Relay relay(world);  // the target calls it; it passes on what it hears, back to the target
//    Thief thief(world, {});
//    thief.claim();       // a process that says that it is World::kMortal, and is elsewhere
//    thief.speak(1, 100);
//    const uint8_t bytes[] = {1, 2, 3};
//    Input input(bytes, sizeof bytes);
//    relay.pass(input);
//
// Not for what breaks the protocol: fuzz_liar.h.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_ACTORS_H
#define WEFT_PLUGINS_RXD_PROTOCOL_FUZZ_ACTORS_H

#include <deque>
#include <utility>
#include <vector>

#include "plugins/rxd/protocol/fuzz_liar.h"

namespace weft::rxd::fuzz {

// Passes on datagrams of honest endpoints: whole or in part, once or again, now or later.
class Relay final : public Stranger {
 public:
  explicit Relay(World &world) : world_(world) { world.add(World::kRelay, *this); }

  // To whom it passes on at once what comes from others, and back; 0: it keeps all.
  uint16_t flows_to = 0;
  bool deaf = false;

  void hear(uint16_t from, std::vector<uint8_t> bytes) override {
    if (deaf) return;
    if (flows_to != 0) {
      const uint16_t to = from == flows_to ? caller_ : flows_to;
      if (from != flows_to) caller_ = from;
      return carry(to, std::move(bytes));
    }
    if (kept_.size() == 64) kept_.pop_front();
    kept_.push_back(std::move(bytes));
  }
  void pass(Input &input) {
    const uint8_t how = input.byte();
    if (kept_.empty()) return;
    const auto at = kept_.begin() + ptrdiff_t((how >> 3) % kept_.size());
    std::vector<uint8_t> bytes = *at;
    if ((how & 2) == 0) kept_.erase(at);
    if ((how & 4) != 0) bytes.resize(input.byte() % bytes.size());
    if (!bytes.empty()) carry((how & 1) != 0 ? kTarget : World::kMortal, std::move(bytes));
  }

 private:
  void carry(uint16_t to, std::vector<uint8_t> bytes) {
    ++relay_tally().attempts;
    world_.carry(World::kRelay, to, std::move(bytes));
  }

  World &world_;
  uint16_t caller_ = kTarget;
  std::deque<std::vector<uint8_t>> kept_;
};

// A process on the host of the honest endpoint that may die. It has that one's port while it does
// not run, or says so in requests of its own.
class Thief {
 public:
  static constexpr uint16_t kElsewhere = 21;

  Thief(World &world, const Settings &settings) : world_(world), settings_(settings) {
    settings_.auth_key.clear();
  }

  bool owns_port() const { return owns_; }
  void take_port() {
    if (owns_ || world_.node(World::kMortal) != nullptr) return;
    owns_ = true;
    come(World::kMortal);
  }
  void give_port() {
    if (std::exchange(owns_, false)) world_.kill(World::kMortal);
  }
  void claim() {
    if (world_.node(kElsewhere) == nullptr) come(kElsewhere);
  }
  void leave() {
    give_port();
    if (world_.node(kElsewhere) != nullptr) world_.kill(kElsewhere);
  }
  // A message to the target, with its mark.
  void speak(uint8_t how, size_t length) {
    Node *self = (how & 1) != 0 ? world_.node(kElsewhere) : nullptr;
    if (self == nullptr && owns_) self = world_.node(World::kMortal);
    if (self == nullptr) return;
    self->start({.to = kTarget,
                 .length = length,
                 .tag = kActorsTag,
                 .delivery = (how & 2) != 0,
                 .transmit = (how & 4) != 0,
                 .mark = kStolen | world_.pair.stolen++});
  }

 private:
  void come(uint16_t number) {
    ++thief_tally().attempts;
    Node &node = world_.add(number, settings_);
    node.is_thief = true;
    node.core().set_own_address(address_of(World::kMortal));
    node.name(kTarget, true);
  }

  World &world_;
  Settings settings_;
  bool owns_ = false;
};

}  // namespace weft::rxd::fuzz

#endif
