// SPDX-License-Identifier: BSD-2-Clause
// Neighbours: an engine among the processes of its host, and of others: who they are, and the
// connections to them.
//
// Example:
//    // What a process does that has nothing else to do.
//    inline void serve(Neighbours &neighbours) {
//      pollfd descriptor{neighbours.wait_fd(), POLLIN, 0};
//      while (::poll(&descriptor, 1, -1) == 1) neighbours.poll();
//    }
//
// A process asks over a connection of its own (AF_UNIX), so what it sends to another stays in
// order, and the answers come back on it. Nothing is sent or received but in poll(), which never
// blocks. Threads may call it at the same time: one works, the others return. A neighbour that ends
// fails what is under way with it alone.
//
// A NIC with an address in a network (network.h) reaches other hosts by TCP, in the same way
// (hosts.h). A NIC that this host has goes over AF_UNIX all the same.
#ifndef WEFT_PLUGINS_CXI_SOFT_NEIGHBOURS_H
#define WEFT_PLUGINS_CXI_SOFT_NEIGHBOURS_H

#include <poll.h>
#include <weft/result.h>
#include <weft/sdk/progress/fork_mark.h>
#include <weft/sdk/progress/interruptions.h>
#include <weft/sdk/progress/patience.h>
#include <weft/sdk/progress/unique_fd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plugins/cxi/soft/engine.h"
#include "plugins/cxi/soft/hosts.h"
#include "plugins/cxi/soft/link.h"
#include "plugins/cxi/soft/outside.h"
#include "plugins/cxi/soft/peer_stream.h"
#include "plugins/cxi/soft/registry.h"
#include "plugins/cxi/soft/room.h"

namespace weft::cxi {

class Neighbours final : public Outside, private Hosts::User {
 public:
  // `folder` is the user's (runtime_dir.h); `seed`: the engine's.
  static Result<std::unique_ptr<Neighbours>> open(const std::string &folder, uint64_t seed,
                                                  const RegistryLimits &limits = {},
                                                  const HostsOptions &options = {});
  ~Neighbours() override;

  // A NIC of this host, from now on also for this process. `address`: the IPv4 address by which
  // other hosts know it, which must be this host's; 0: they do not reach it. `name` is for the
  // words.
  Result<std::unique_ptr<Lni>> open_nic(Nid nid, uint32_t address = 0,
                                        uint32_t service = Service::kDefault,
                                        const std::string &name = "the NIC");
  Engine &engine() { return engine_; }

  // kMayWait: somebody else polls, too, when the caller no longer does. Acknowledgements of what
  // this call reads from another host may then wait for the next call, or for settle(), and go
  // along with a message to the same process. They do where such calls have come soon. kWait: in
  // any case.
  enum class Answers : uint8_t { kAtOnce, kMayWait, kWait };
  void poll(Answers answers = Answers::kAtOnce);
  // Writes what this process sends, and reads nothing.
  void push();
  // Writes acknowledgements that wait.
  void settle();
  // Nothing moves in between, by no thread: while the process forks.
  void hold() {
    polling_.lock();
    engine_.lock.lock();
  }
  void go_on() {
    engine_.lock.unlock();
    polling_.unlock();
  }
  // Readable when a neighbour has something for poll(). What this process sends leaves with its own
  // next poll().
  int wait_fd() const { return epoll_.get(); }
  size_t connections() const;
  size_t visitors() const { return hosts_.visitors(); }
  // How often acknowledgements went along with a message; for whoever polls.
  uint64_t taken_along() const { return taken_along_; }

  // What a NIC that this process has opened counts, of all processes.
  uint64_t telemetry(Nid nid, Telemetry which);

  // ---- Outside ----
  Pool &pool(Nid nid) override { return *registries_.at(nid); }
  Result<Pid> claim(Nid nid, Vni vni, Pid pid) override;
  void release(Nid nid, Vni vni, Pid pid) override;
  Rc send(const Packet &packet) override;
  void on_waiting(bool waits) override;

 private:
  Neighbours(std::string folder, uint64_t seed, const RegistryLimits &limits,
             const HostsOptions &options);
  Result<void> listen();
  Result<void> watch_hosts();
  Registry *open_registry(Nid nid);
  Link *link_to(const Packet &packet, Rc &why);
  Link *near_link(Registry &registry, const Address &to, Vni vni, Rc &why);
  Link *far_link(uint32_t own, const Packet &packet);
  Link *add(sdk::UniqueFd fd, const std::string &name);
  void mark(Link &link);
  void poll_once(Answers answers);
  void accept_all();
  bool poll_hot();  // false: all are to be looked at
  void poll_all();
  void set_hot(Link &link);
  bool answer(Link &link);  // what has been read; false: it is over
  void write_late();
  void note_progress();
  bool read_from(Link &link);  // false: it is over
  bool write_to(Link &link);   // false: it is over
  void write_marked();
  void take_along(Link &link);
  void end(Link &link);  // when the others have been looked at
  void remove_ended();
  void remove(Link &link);

  // ---- neighbours_far.cc; with `polling_` ----
  std::optional<Hello> find(const Hello &call, Nid there) override;
  void on_asker(sdk::UniqueFd fd, Nid here, Nid there, uint64_t key) override;
  void on_welcome(Link &link, sdk::UniqueFd fd, const std::string &name, uint64_t key) override;
  void on_failure(Link &link, Rc why) override;
  void on_time(unsigned timeout_ms, bool is_tick) override;
  void be_own(Link &link);
  void forget_far(const Link &link, Link *other);
  void find_partner(Link &link);
  void lose_partner(Link &link);
  bool is_left_alone(Link &link);  // for each tick

  // ---- neighbours_strangers.cc; with `polling_`, and but for the last one the engine's lock ----
  bool may_ask(Nid there);
  bool may_answer(const Link &link);
  void give_turns();
  std::set<Nid> called() const;
  bool is_over(const Link &link) const;
  std::shared_ptr<Room> room_of(Nid there);
  void mark_stopped();

  const std::string folder_;
  const RegistryLimits limits_;
  Engine engine_;
  sdk::UniqueFd epoll_, listener_;
  std::string own_name_;
  // A number among those of the process. In the registry there is the port for other hosts above
  // it.
  static constexpr unsigned kDoorBits = 16;
  static constexpr uint32_t kDoorMask = (1u << kDoorBits) - 1;
  uint32_t door_ = 0;
  const sdk::ForkMark mark_;  // a forked child leaves the sockets alone

  std::mutex polling_;
  // ---- of whoever polls ----
  Hosts hosts_;
  bool watches_hosts_ = false;
  size_t far_links_ = 0;  // open ones to other hosts
  // Those that had something last. A neighbour has two, one for each direction.
  std::array<Link *, 2> hot_{};
  size_t hot_at_ = 0;  // which of them is looked at next
  unsigned looks_ = 0;
  std::vector<Link *> over_, writing_;  // connections that are over; those with output
  Answers answers_ = Answers::kAtOnce;
  sdk::Patience patience_;
  sdk::Interruptions interruptions_;
  uint64_t taken_along_ = 0;
  std::vector<Link *> late_;           // with acknowledgements that wait
  std::atomic<bool> has_late_{false};  // a hint, for those without `polling_`
  std::multimap<std::pair<uint64_t, uint64_t>, Link *> single_;  // by key and ends
  // ---- with the engine's lock ----
  std::map<Nid, std::unique_ptr<Registry>> registries_;
  sdk::UniqueFd timer_;  // runs while puts wait
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Link *> marked_;             // with output
  std::atomic<bool> has_marked_{false};    // a hint, for those without the lock
  std::map<std::string, Link *> by_name_;  // those that we have opened
  struct Known {
    Link *link;
    uint32_t generation;
  };
  std::unordered_map<uint64_t, Known> known_;       // by NIC, VNI and PID
  std::map<Nid, uint32_t> addresses_;               // of our NICs that reach other hosts
  std::map<std::pair<Nid, uint64_t>, Link *> far_;  // by our NIC; and NIC, VNI and PID
  Rooms rooms_;
  std::map<Nid, std::weak_ptr<Room>> room_of_;  // of other hosts
};

}  // namespace weft::cxi

#endif
