// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/random_model.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace weft::conformance {

using Kind = RandomOperation::Kind;
using State = RandomSlot::State;

const char *RandomOperation::name() const {
  static constexpr const char *kNames[] = {"send", "receive", "write", "read", "add", "fetch-add"};
  return kNames[size_t(kind)];
}

void RandomModel::born(RandomHost &host, PeerProcess *process, const Introduction &where) {
  host.process = process;
  host.where = where;
  host.is_alive = true;
  host.cells.assign(kCells, {});
}

void RandomModel::killed(RandomHost &host) {
  host.is_alive = false;
  has_killed_ = true;
  for (auto &[word, message] : messages_) {
    if (message.stamp.peer != host.index || message.stamp.life != host.life) continue;
    message.is_orphaned = true;
    ++broken_messages_;
  }
  for (const auto &slot : slots) std::fill_n(slot->echoes[host.index], 2, 0);
}

void RandomModel::started(std::unique_ptr<RandomOperation> operation) {
  RandomSlot &slot = *operation->slot;
  if (operation->kind == Kind::kReceive) {
    ++slot.receives[operation->is_tagged];
  } else {
    ++slot.transmits;
    if (operation->kind != Kind::kSend)
      hosts[operation->peer].cells[operation->cell].is_busy = true;
  }
  operation->number = started_++;
  void *const context = operation.get();
  operations_.emplace(context, std::move(operation));
}

void RandomModel::sent(RandomSlot &slot, const Message &message) {
  messages_.emplace(message.stamp.word(), message);
  if (is_connected_) slot.order.push_back(message.stamp.word());
  if (is_dead(message.stamp.peer, message.stamp.life)) {
    Message &stray = messages_.find(message.stamp.word())->second;
    stray.is_orphaned = stray.is_stray = true;
  } else {
    ++slot.echoes[message.stamp.peer][message.is_tagged];
  }
}

const RandomModel::Message *RandomModel::find_message(uint64_t stamp) const {
  const auto found = messages_.find(stamp);
  return found == messages_.end() ? nullptr : &found->second;
}

void RandomModel::abandon(RandomSlot &slot) {
  for (auto &[context, operation] : operations_) {
    if (operation->slot != &slot || operation->is_over || operation->is_abandoned) continue;
    operation->is_abandoned = true;
    RandomHost &host = hosts[operation->peer];
    if (operation->kind == Kind::kSend || operation->kind == Kind::kReceive) continue;
    if (!is_dead(operation->peer, operation->life)) host.cells[operation->cell].is_unknown = true;
  }
  std::erase_if(messages_,
                [&](const auto &entry) { return entry.second.stamp.slot == slot.number; });
  slot.state = State::kClosed;
}

void RandomModel::completed(const Done &done) {
  const auto found = operations_.find(done.context);
  if (found == operations_.end()) {
    // The error of an injected message has the context of its endpoint.
    const auto slot = std::find_if(slots.begin(), slots.end(),
                                   [&](const auto &each) { return each.get() == done.context; });
    const bool is_allowed =
        done.err != 0 && has_killed_ && slot != slots.end() && (*slot)->injected != 0;
    EXPECT_TRUE(is_allowed) << "a completion of nothing, flags " << done.flags << ", error "
                            << done.err;
    if (is_allowed) {
      --(*slot)->injected;
      ++(*slot)->lost;
    }
    return;
  }
  RandomOperation &operation = *found->second;
  ASSERT_FALSE(operation.is_over) << "a second completion of a " << operation.name();
  operation.is_over = true;
  if (operation.kind == Kind::kReceive) --operation.slot->receives[operation.is_tagged];
  if (operation.is_abandoned) {
  } else if (done.err != 0) {
    failed(operation, done);
  } else if (operation.kind == Kind::kReceive) {
    arrived(operation, done);
  } else if (operation.kind != Kind::kSend) {
    moved(operation);
  }
  operation.bytes = {};
}

void RandomModel::failed(RandomOperation &operation, const Done &done) {
  const std::string text = std::string("a ") + operation.name() + " of endpoint " +
                           std::to_string(operation.slot->number) + " with peer " +
                           std::to_string(operation.peer) + ", life " +
                           std::to_string(operation.life) + ": " + fi_strerror(done.err);
  if (operation.kind == Kind::kReceive) {
    if (operation.is_canceled && done.err == FI_ECANCELED) return;
    if (operation.slot->to != nullptr) {
      EXPECT_TRUE(is_dead(operation.slot->to->index, operation.slot->life)) << text;
      return;
    }
    EXPECT_NE(broken_messages_, 0u) << text;
    if (broken_messages_ != 0) --broken_messages_;
    return;
  }
  EXPECT_TRUE(is_dead(operation.peer, operation.life)) << text << ", toward a living peer";
  if (operation.kind != Kind::kSend && !is_dead(operation.peer, operation.life))
    hosts[operation.peer].cells[operation.cell].is_busy = false;
}

bool RandomModel::is_closed(unsigned slot) const {
  return slot != 0 && slot <= slots.size() && slots[slot - 1]->state == State::kClosed;
}

void RandomModel::arrived(RandomOperation &operation, const Done &done) {
  RandomSlot &slot = *operation.slot;
  uint64_t word = done.tag;
  if (is_connected_) {
    ASSERT_FALSE(slot.order.empty()) << "a message that nobody sent";
    word = slot.order.front();
    slot.order.pop_front();
  } else if (!operation.is_tagged) {
    ASSERT_GE(done.len, kStampBytes);
    std::memcpy(&word, operation.bytes.data(), kStampBytes);
  }
  const auto found = messages_.find(word);
  const Stamp stamp = Stamp::of(word);
  // An endpoint may have the address of one that was closed, and get what is on its way to that.
  if (!is_connected_ && found == messages_.end() && is_closed(stamp.slot)) return;
  ASSERT_NE(found, messages_.end()) << "message " << stamp.number << " of endpoint " << stamp.slot
                                    << " came back twice, or was never sent";
  const Message message = found->second;
  messages_.erase(found);
  ASSERT_TRUE(stamp.slot == slot.number || message.is_stray) << "came back to another endpoint";
  ASSERT_EQ(message.is_tagged, operation.is_tagged);
  ASSERT_EQ(done.len, message.size);
  const std::vector<uint8_t> expected = message_of(stamp, message.size, message.is_tagged);
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), operation.bytes.begin()))
      << message.size << " bytes, message " << stamp.number << " of endpoint " << stamp.slot;
  if (message.is_stray) return;
  if (message.is_orphaned) {
    if (broken_messages_ != 0) --broken_messages_;
  } else {
    --slot.echoes[stamp.peer][message.is_tagged];
  }
}

void RandomModel::moved(RandomOperation &operation) {
  if (is_dead(operation.peer, operation.life)) return;
  RandomHost::Cell &cell = hosts[operation.peer].cells[operation.cell];
  cell.is_busy = false;
  uint8_t *const at = cell.bytes.data() + operation.at;
  const std::vector<uint8_t> &bytes = operation.bytes;
  if (operation.kind == Kind::kWrite) {
    std::copy(bytes.begin(), bytes.end(), at);
    return;
  }
  if (operation.kind != Kind::kAdd) {
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), at))
        << "a " << operation.name() << " of " << bytes.size() << " bytes";
  }
  if (operation.kind == Kind::kRead) return;
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  value += operation.operand;
  std::memcpy(at, &value, sizeof value);
}

size_t RandomModel::under_way() const {
  return size_t(std::count_if(operations_.begin(), operations_.end(), [](const auto &entry) {
    const RandomOperation &each = *entry.second;
    return each.kind != Kind::kReceive && !each.is_over && !each.is_abandoned;
  }));
}

size_t RandomModel::toward_the_dead() const {
  return size_t(std::count_if(operations_.begin(), operations_.end(), [this](const auto &entry) {
    const RandomOperation &each = *entry.second;
    if (each.is_over || each.is_abandoned) return false;
    if (each.kind == Kind::kReceive) return each.slot->state == State::kEnded;
    return is_dead(each.peer, each.life);
  }));
}

size_t RandomModel::messages_to_come() const {
  if (may_lose_) return 0;
  return size_t(std::count_if(messages_.begin(), messages_.end(),
                              [](const auto &entry) { return !entry.second.is_orphaned; }));
}

size_t RandomModel::connections_to_end() const {
  return size_t(std::count_if(slots.begin(), slots.end(), [this](const auto &slot) {
    return slot->to != nullptr && is_dead(slot->to->index, slot->life) &&
           (slot->state == State::kOpen || slot->state == State::kConnecting);
  }));
}

std::string RandomModel::describe() const {
  std::string text = std::to_string(connections_to_end()) + " connections of dead peers";
  for (const auto &[context, each] : operations_) {
    const bool is_waiting = each->kind == Kind::kReceive && each->slot->state != State::kEnded;
    if (is_waiting || each->is_over || each->is_abandoned) continue;
    text += std::string("\n  a ") + each->name() + " of endpoint " +
            std::to_string(each->slot->number) + ", " + std::to_string(each->bytes.size()) +
            " bytes, toward peer " + std::to_string(each->peer) + ", life " +
            std::to_string(each->life);
  }
  for (const auto &[word, each] : messages_) {
    if (each.is_orphaned) continue;
    text += "\n  message " + std::to_string(each.stamp.number) + " of endpoint " +
            std::to_string(each.stamp.slot) + ", " + std::to_string(each.size) +
            " bytes, from peer " + std::to_string(each.stamp.peer) +
            (each.is_tagged ? ", tagged" : "");
  }
  return text;
}

RandomOperation *RandomModel::some_receive(size_t choice) const {
  std::vector<RandomOperation *> posted;
  for (const auto &[context, each] : operations_)
    if (each->kind == Kind::kReceive && !each->is_over && !each->is_abandoned &&
        each->slot->state == State::kOpen)
      posted.push_back(each.get());
  if (posted.empty()) return nullptr;
  std::sort(posted.begin(), posted.end(), [](const auto *a, const auto *b) {
    return a->number < b->number;  // the same with each run of a seed
  });
  return posted[choice % posted.size()];
}

}  // namespace weft::conformance
