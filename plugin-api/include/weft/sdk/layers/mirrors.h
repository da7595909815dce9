// SPDX-License-Identifier: BSD-2-Clause
// Mirrors: counters of a layer that count what the provider beneath counts: the accesses of peers
// to memory that is registered there. Each counter beneath has one of the application's, which
// follows it in each progress.
//
// Example:
//    // What peers write to `region`, of the domain beneath, is counted by `outer`.
//    inline Result<void> count_writes(Mirrors &mirrors, Engine &engine, fid_domain *beneath,
//                                     fid_mr *region, Cntr &outer) {
//      WEFT_TRY(fid_cntr *const inner, Mirrors::open(beneath));
//      if (const int rc = fi_mr_bind(region, &inner->fid, FI_REMOTE_WRITE); rc != 0) {
//        fi_close(&inner->fid);
//        return fail(-rc, "the region takes no counter");
//      }
//      mirrors.add(engine, inner, outer);
//      return {};
//    }
//
// The caller keeps the counter of the application open (Cntr::users). Not for what the layer counts
// by itself.
#ifndef WEFT_SDK_LAYERS_MIRRORS_H
#define WEFT_SDK_LAYERS_MIRRORS_H

#include <rdma/fi_domain.h>
#include <weft/result.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/progress/engine.h>

#include <cstdint>
#include <vector>

namespace weft::sdk {

class Mirrors final : public Poller {
 public:
  explicit Mirrors(fid_fabric *fabric) : fabric_(fabric) {}
  // A counter of the domain beneath that counts completions, and can be waited for.
  static Result<fid_cntr *> open(fid_domain *beneath);

  // ---- with the engine's lock held ----
  // Takes ownership of `inner`.
  void add(Engine &engine, fid_cntr *inner, Cntr &outer);
  void follow_now() { on_poll(); }
  // Closes `inner`.
  void remove(Engine &engine, fid_cntr *inner);

  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

 private:
  struct Mirror {
    fid_cntr *inner;
    Cntr *outer;
    uint64_t value, errors;
  };
  static void follow(Mirror &mirror);
  fid_fabric *const fabric_;
  std::vector<Mirror> mirrors_;
};

}  // namespace weft::sdk

#endif
