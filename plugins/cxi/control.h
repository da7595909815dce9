// SPDX-License-Identifier: BSD-2-Clause
// Control: the portals of an endpoint through which peers reach its memory regions, and the short
// messages that endpoints send each other about flow control.
//
// Example:
//    // A region of the application, from now on open to peers.
//    inline Result<void> link(Control &control, WindowUser &user, Entry entry) {
//      WEFT_TRY(entry.buffer_id, control.add(user));
//      control.writes().append(List::kPriority, entry);
//      return {};
//    }
//
// A message that the peer had no place for goes again after a while; one to a peer that is gone
// ends what waits for that peer. While one is not answered, another one that says no more waits for
// it: a peer that asks a lot and answers nothing costs no memory. All calls are with the endpoint's
// lock held.
#ifndef WEFT_PLUGINS_CXI_CONTROL_H
#define WEFT_PLUGINS_CXI_CONTROL_H

#include <weft/sdk/progress/engine.h>

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "plugins/cxi/bits.h"
#include "plugins/cxi/links.h"
#include "plugins/cxi/ports.h"
#include "plugins/cxi/settings.h"
#include "plugins/cxi/tokens.h"

namespace weft::cxi {

class Inbox;
class Transmit;

// What has an entry in the portals of regions.
class WindowUser {
 public:
  virtual void on_window(const Event &event) = 0;

 protected:
  ~WindowUser() = default;
};

class Control final : private sdk::Handler {
 public:
  Control(const Ports &ports, sdk::Engine &engine, const Settings &settings, Transmit &transmit,
          Inbox &inbox);
  // `match_events`: the NIC tells of each access of a peer to a region twice, when it begins and
  // when it has ended.
  Result<void> open(bool waits, bool match_events);
  void close();

  void tell(const Peer &peer, ControlBits bits);
  // A put of no bytes, by which its sender learns whether the peer has an endpoint: the answer is
  // ENTRY_NOT_FOUND if it has, and the peer's process has nothing to do. False: not now.
  bool ask(const Peer &peer, EventQueue &answers, uint64_t user_ptr);

  // ---- regions ----
  Portal &writes() { return *writes_; }
  Portal &reads() { return *reads_; }
  EventQueue &events() { return *events_; }
  // `portal`: one of the above, or one whose events are ours.
  void append(Portal &portal, const Entry &entry) { links_.append(portal, entry); }
  // Whether the NIC has had a place for all of them. `what`: for whom.
  Result<void> linked(const char *what);
  Result<uint16_t> add(WindowUser &user);  // a buffer_id
  void remove(uint16_t buffer_id);
  bool has_match_events() const { return match_events_; }
  // With those: no peer finds the entry any more. Then, whether some still use it.
  void unlink(Portal &portal, uint16_t buffer_id);
  bool is_in_use(uint16_t buffer_id) const {
    return unlinks_ != 0 || users_[buffer_id].under_way != 0;
  }
  // As remove(), and the number is not used again: events may name it for ever.
  void abandon(uint16_t buffer_id) { users_[buffer_id] = {}; }

  // ---- progress ----
  bool read_events();  // false: there were none

 private:
  struct Message {
    Peer peer;
    ControlBits bits;
    uint64_t at = 0;     // 0: under way; else when it goes again
    bool again = false;  // it was to be told once more since it is under way
    uint64_t token = 0;
  };

  void send(Message &message);
  bool put(const Peer &peer, uint64_t bits, EventQueue &eq, uint64_t user_ptr);
  void on_answer(Message &message, Rc rc);
  void on_control(const Event &event);
  void on_access(const Event &event);
  void schedule();
  void on_deadline() override;
  void on_event(uint32_t) override {}

  const Ports &ports_;
  sdk::Engine &engine_;
  const Settings &settings_;
  Transmit &transmit_;
  Inbox &inbox_;
  std::unique_ptr<EventQueue> events_;
  VniQueue queue_;
  std::unique_ptr<Portal> writes_, reads_;
  Links links_;
  bool match_events_ = false;
  size_t unlinks_ = 0;  // that the NIC has not done yet
  std::list<Message> messages_;
  Tokens<Message> tokens_;
  struct User {
    WindowUser *user = nullptr;
    uint32_t under_way = 0;  // accesses that the NIC has matched, and that have not ended
  };
  std::vector<User> users_;
  std::deque<uint16_t> free_;  // in the order of their last use: events may still name them
};

}  // namespace weft::cxi

#endif
