// SPDX-License-Identifier: BSD-2-Clause
// FabricManager: asks the fabric manager of a Slingshot network for the multicast addresses of
// groups, by its REST API (FI_CXI_COLL_FABRIC_MGR_URL; fi_cxi.7, COLLECTIVE OPERATIONS).
//
// Example:
//    // The root of a group asks; the answer comes by on_manager_answer().
//    inline void ask(FabricManager &manager, uint64_t group, std::vector<Nid> members, Vni vni) {
//      manager.ask(group, members, vni);
//    }
//
// A POST to the URL has the members, and the answer an address, which a DELETE gives back. One
// thread sends requests and waits for answers; answers are given to the user with the engine's lock
// held. libcurl is opened when the first group asks. Not for who may have which address: the
// manager decides.
#ifndef WEFT_PLUGINS_CXI_FABRIC_MANAGER_H
#define WEFT_PLUGINS_CXI_FABRIC_MANAGER_H

#include <weft/result.h>
#include <weft/sdk/progress/engine.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/cxi/collective/reduction.h"
#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

struct ManagerOptions {
  std::string url;  // empty: there is none
  std::string token, job, step;
};
// That an URL may have a token sent to it: it is encrypted, or of this host.
Result<void> check_manager(const ManagerOptions &options, const std::string &origin);

class FabricManager {
 public:
  static constexpr uint32_t kMaxAddress = 0xffff;  // from 8192 on no switch knows it
  static constexpr unsigned kPatienceMs = 5000;    // for one request

  struct Answer {
    uint64_t group = 0;
    Failure failure = Failure::kNone;
    std::string why;  // of a failure
    uint32_t address = 0;
    Nid root = 0;
  };
  class User {
   public:
    virtual void on_manager_answer(const Answer &answer) = 0;

   protected:
    ~User() = default;
  };

  // FI_ENOSYS: there is no libcurl.
  static Result<std::unique_ptr<FabricManager>> open(const weft_instance *instance,
                                                     const ManagerOptions &options,
                                                     sdk::Engine &engine, User &user);
  // Waits until addresses are given back, for as long as a request may take: without the engine's
  // lock, after leave().
  ~FabricManager();
  void leave();  // with the lock: the user hears nothing more
  void ask(uint64_t group, const std::vector<Nid> &members, Vni vni);
  void give_back(uint32_t address);

  // What the manager's JSON says; a failure otherwise.
  static Answer parse(uint64_t group, const std::string &text);
  static std::string request(const ManagerOptions &options, const std::vector<Nid> &members,
                             Vni vni);

 private:
  class Worker;
  explicit FabricManager(std::unique_ptr<Worker> worker);
  std::unique_ptr<Worker> worker_;
};

}  // namespace weft::cxi

#endif
