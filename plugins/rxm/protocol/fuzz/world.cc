// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/fuzz/world.h"

#include "plugins/rxm/protocol/fuzz/side.h"

namespace weft::rxm {

weft::fuzz::Tally &thief_tally() {
  static weft::fuzz::Tally tally("thief");
  return tally;
}

weft::fuzz::Tally &relay_tally() {
  static weft::fuzz::Tally tally("relay");
  return tally;
}

// Runs one pending event. False: there is none.
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

}  // namespace weft::rxm
