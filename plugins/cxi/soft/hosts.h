// SPDX-License-Identifier: BSD-2-Clause
// Hosts: how the processes of different hosts find each other, by TCP.
//
// Example:
//    // Whether a NIC can be had at this address; others reach it from now on.
//    inline bool opens(Hosts &hosts, uint32_t address) {
//      return hosts.listen(address & kMaxNid, address).has_value();
//    }
//
// A NIC has a door: a port of its address, the same on all hosts. All processes that have opened
// the NIC listen there (SO_REUSEPORT), and the kernel gives each call to one of them. It looks into
// the registry of the host, and tells the caller at which port of its own the owner listens. So no
// process holds the door alone: when one ends, what waited for it is reset and comes again, and the
// kernel gives it to another one. Only processes of one user share a port. Ports by arithmetic
// would do without the answer, but two jobs with different VNIs use the same PIDs; a single holder
// would have to be replaced by somebody who notices its end.
//
// A process asks over a connection of its own, as on one host, and is answered there. So there is
// one for each direction: two processes that call each other at the same time do not get in each
// other's way, and who waits for its answers to be read never keeps the other from reading. Each
// tells the other host a number at random, in its calls and in its welcomes, so that both know
// which two connections have the same ends: an acknowledgement may then go along with a message.
//
// Who calls has little room: its address must be in the NIC's network; it has to say whom it wants
// within the timeout; and few may do so at a time. The oldest of the address that has the most
// makes room for the next. How many of those that have said it are welcome, the user decides: who
// is not yet waits until the timeout.
//
// All calls are for whoever polls. Not for a NIC of 127.0.0.0/8: nothing listens for that.
#ifndef WEFT_PLUGINS_CXI_SOFT_HOSTS_H
#define WEFT_PLUGINS_CXI_SOFT_HOSTS_H

#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cxi/soft/call.h"
#include "plugins/cxi/soft/frame.h"

namespace weft::cxi {

class Link;

struct HostsOptions {
  uint16_t port = 24711;       // the door; outside of those that kernels give away
  unsigned timeout_ms = 5000;  // until a host that does not answer counts as gone
  std::function<void(const std::string &)> say;  // what a user should know
};

class Hosts {
 public:
  static constexpr size_t kMaxVisitors = 64;  // that are not welcome yet
  static constexpr unsigned kTicks = 4;       // in the timeout

  class User {
   public:
    virtual ~User() = default;
    // Whom a caller finds here: kWelcome, kElsewhere or kRefused. None: not yet.
    virtual std::optional<Hello> find(const Hello &call, Nid there) = 0;
    // `key`: what the peer told us, as in its call so in its welcome; 0: nothing.
    virtual void on_asker(sdk::UniqueFd fd, Nid here, Nid there, uint64_t key) = 0;
    // What came of call().
    virtual void on_welcome(Link &link, sdk::UniqueFd fd, const std::string &name,
                            uint64_t key) = 0;
    virtual void on_failure(Link &link, Rc why) = 0;
    // Some time has passed; `is_tick`: a part of the timeout.
    virtual void on_time(unsigned timeout_ms, bool is_tick) = 0;
  };

  Hosts(User &user, HostsOptions options);
  ~Hosts();
  Hosts(const Hosts &) = delete;
  Hosts &operator=(const Hosts &) = delete;

  // A NIC listens; returns its port that is this process's alone.
  Result<uint16_t> listen(Nid nid, uint32_t address);
  void call(Link &link, const Call::Target &target);
  void forget(const Link &link);
  // What we have told the other host about us is forgotten.
  void forget_key(Nid here, Nid there) { keys_.erase({here, there}); }
  // Whether there are connections, which want on_time().
  void watch_links(bool any);
  // The user waits for something that nobody tells: on_time() comes often.
  void be_hasty(bool hasty);

  // Readable when poll() has something to do; -1: never, since no NIC listens.
  int wait_fd() const { return epoll_.get(); }
  void poll();
  const HostsOptions &options() const { return options_; }
  size_t visitors() const { return visitors_.size(); }

 private:
  struct Source;
  struct Listener;
  struct Visitor;
  struct Caller;
  Result<void> open();
  Result<void> add_listener(sdk::UniqueFd fd, Nid nid, uint32_t address);
  void accept_all(Listener &listener);
  void make_room();
  bool hears(Visitor &visitor);   // false: it is over
  bool answer(Visitor &visitor);  // likewise
  void on_visitor(Visitor &visitor);
  void end(std::list<std::unique_ptr<Visitor>>::iterator visitor);
  uint64_t key_for(Nid here, Nid there);
  void on_caller(Caller &caller, Call::Clock::time_point now);
  void on_time(Call::Clock::time_point now);
  void set_timer();

  User &user_;
  const HostsOptions options_;
  sdk::UniqueFd epoll_, timer_;
  int64_t period_ms_ = 0;  // of the timer; 0: it is off
  bool has_links_ = false, is_hasty_ = false;
  Call::Clock::time_point next_tick_;
  std::map<Nid, uint16_t> ports_;
  std::map<std::pair<Nid, Nid>, uint64_t> keys_;  // by our NIC and the other one
  std::vector<std::unique_ptr<Listener>> listeners_;
  // By age. What is over stays until the events at hand are done.
  std::list<std::unique_ptr<Visitor>> visitors_;
  std::map<const Link *, std::unique_ptr<Caller>> callers_;
  std::vector<std::unique_ptr<Source>> gone_;
};

}  // namespace weft::cxi

#endif
