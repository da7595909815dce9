// SPDX-License-Identifier: BSD-2-Clause
// AvSet: a set of an address vector's entries (fi_av_set.3), in an order: who takes part in
// collective operations.
//
// Example:
//    // The peers of a group, as fi_join_collective names them, by their rank.
//    Result<std::vector<Address>> peers_of(Av &av, const fid_av_set *fid) {
//      WEFT_TRY(AvSet *const set, AvSet::find(av, fid));
//      std::vector<Address> peers;
//      for (const fi_addr_t member : set->members()) {
//        const auto peer = av.address(av.index_of(member));
//        if (!peer) return fail(FI_EINVAL, "a member of the set was removed from the vector");
//        peers.push_back(*peer);
//      }
//      return peers;
//    }
//
// A set knows no group, and no provider: members are what the application calls them. An address
// stands once in a set. But where the application has a communication key it says itself who is a
// member, and an address that it inserts is appended in any case.
//
// With FI_PEER in the flags a set is imported (fi_peer.3): its members are those of another
// provider's set, as they are then, and both vectors have the same addresses at the same places.
//
// A vector with sets is busy. The ops take the engine's lock; a provider calls with it held. What
// fi_av_set_addr returns says which set it is: kBase plus a number; no vector has such addresses.
// Not for what a communication key means, nor for which collectives a provider has: flags() are
// those that the application asked for.
#ifndef WEFT_SDK_ADDRESSES_AV_SET_H
#define WEFT_SDK_ADDRESSES_AV_SET_H

#include <rdma/fi_collective.h>
#include <weft/result.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/fid.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::sdk {

class AvSet final : public Object<AvSet, fid_av_set> {
 public:
  static constexpr fi_addr_t kBase = UINT64_C(1) << 61;
  static constexpr size_t kMaxKey = 4096;  // bytes of a communication key
  // Which collectives a set is for; none: all that the provider has.
  static constexpr uint64_t kCollectives =
      FI_BARRIER_SET | FI_BROADCAST_SET | FI_ALLTOALL_SET | FI_ALLREDUCE_SET | FI_ALLGATHER_SET |
      FI_REDUCE_SCATTER_SET | FI_REDUCE_SET | FI_SCATTER_SET | FI_GATHER_SET;

  static Result<AvSet *> open(Av &av, const fi_av_set_attr *attr, void *context);

  // ---- for the provider ----
  // The set that an application names, which must be of this vector.
  static Result<AvSet *> find(Av &av, const fid_av_set *set);
  const std::vector<fi_addr_t> &members() const { return members_; }
  std::span<const uint8_t> communication_key() const { return key_; }
  uint64_t flags() const { return flags_; }
  bool has(fi_addr_t address) const;
  Lock &lock() { return av_.engine().lock(); }
  std::atomic<size_t> users{0};  // to whom it is lent (fi_peer.3): a set with some is busy

  // ---- fi_ops_av_set ----
  int set_union(const struct fid_av_set *source);
  int intersect(const struct fid_av_set *source);
  int diff(const struct fid_av_set *source);
  int insert(fi_addr_t address);
  int remove(fi_addr_t address);  // -FI_EINVAL: it is no member
  int addr(fi_addr_t *address);

  // ---- fi_ops ----
  int close();
  int control(int command, void *arg);  // FI_EXPORT_FID

 private:
  AvSet(Av &av, const fi_av_set_attr &attr, void *context);
  ~AvSet() = default;
  Result<void> fill(const fi_av_set_attr &attr);
  Result<void> import(void *context);
  const AvSet *other(const fid_av_set *source) const;
  void add(fi_addr_t address);

  Av &av_;
  const uint64_t flags_;
  const std::vector<uint8_t> key_;
  const fi_addr_t address_;
  std::vector<fi_addr_t> members_;
};

}  // namespace weft::sdk

#endif
