// SPDX-License-Identifier: BSD-2-Clause
// DomainCore: what the domains of all providers have: an engine, queues, counters, poll sets, and
// the calls that register memory. SoftwareDomain: the same with a table of regions (mr.h).
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    class Domain final : public Object<Domain, fid_domain>, public SoftwareDomain {
//     public:
//      Domain(const weft_instance *instance, const DomainSettings &settings, void *context)
//          : Object(instance, FI_CLASS_DOMAIN, context),
//            SoftwareDomain(instance, base(), settings) {
//        fill_tables(*this);
//      }
//      int endpoint(fi_info *info, fid_ep **ep, void *context);  // what is the provider's own
//      int close();
//    };
//
// It owns the engine. Not for endpoints, address vectors or anything that differs between
// providers.
#ifndef WEFT_SDK_OBJECTS_DOMAIN_H
#define WEFT_SDK_OBJECTS_DOMAIN_H

#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/mr.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/progress.h>
#include <weft/sdk/transfers/deferred.h>
#include <weft/sdk/unit/info_list.h>
#include <weft/sdk/unit/log.h>

namespace weft::sdk {

class Eq;

// Ends an open call of the API: gives out the object's fid, or logs why not (the application gets a
// number only).
template <class T>
int finish(const weft_instance *instance, enum fi_log_subsys subsys, Result<T *> result,
           typename T::FidType **out) {
  if (!result) {
    WEFT_WARN(instance, subsys, "%s", result.error().text.c_str());
    return -result.error().code;
  }
  *out = (*result)->c();
  return 0;
}

struct DomainSettings {
  uint32_t api_version = 0;
  bool locked = true;
  bool resource_management = true;
  size_t default_cq_size = 1024;
  bool user_ids = false;  // FI_AV_USER_ID
  bool hmem = false;      // FI_HMEM: struct fi_mr_attr says where memory is
  MrTable::Mode mr;
  const fi_info *info = nullptr;  // what it is opened with

  // What fi_domain asks for with `info`.
  static DomainSettings of(const fi_info &info, uint32_t api_version, size_t default_cq_size,
                           const MrTable::Mode &mr);
};

class DomainCore {
 public:
  // `memory` may not be constructed yet.
  DomainCore(const weft_instance *instance, struct fid *fid, const DomainSettings &settings,
             Memory &memory);

  Engine &engine() { return engine_; }
  DomainContext &shared() { return shared_; }
  // Becomes a lane of a domain of the same class (scalable.h), or what is beneath one.
  Result<void> join(DomainCore &origin);
  // A copy of the info of fi_domain; null: it is not known.
  const fi_info *opened_with() const { return opened_with_.front(); }
  Memory &memory() { return memory_; }
  // FI_HMEM: memory of devices. Null: no buffer is such.
  const Hmem *hmem() const { return hmem_.get(); }

  void close_copies() { engine_.close_copies(); }  // ops.h

  // fi_ops_domain
  int cq_open(struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
  int cntr_open(struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
  int poll_open(struct fi_poll_attr *attr, struct fid_poll **set);

  // fi_ops
  // FI_MAP_RAW_MR, FI_UNMAP_KEY; FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK, unless a device does
  // those (`shared().deferred` is null)
  int control(int command, void *arg);

  // fi_ops_mr
  int reg(const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t requested_key,
          uint64_t flags, struct fid_mr **mr, void *context);
  int regv(const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
           uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context);
  int regattr(const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr);

 protected:
  ~DomainCore() = default;
  int join_domain(fid_domain *origin);
  // fi_domain_bind: an event queue for registrations.
  int bind_eq(struct fid *fid, uint64_t flags);
  // In open(), for a domain with FI_HMEM that copies. From now on each registration is checked, and
  // endpoints have the options of FI_HMEM. A domain of a device does both by itself.
  void set_hmem(std::shared_ptr<const Hmem> hmem) {
    hmem_ = std::move(hmem);
    shared_.devices = hmem_.get();
  }
  void unbind();  // in close, when it is certain to succeed
  // The last part of opening `domain`, for a domain that was opened with `info`: its thread, if it
  // needs one, and its announcement to the core as a child of `fabric`. On an error no thread runs.
  template <class D>
  static Result<void> start(D &domain, const fi_info &info, struct fid *fabric) {
    Result<void> started;
    if (needs_thread(info)) started = domain.engine().start_thread();
    if (started) started = domain.publish(fabric);
    if (!started) domain.engine().stop_thread();
    return started;
  }

 private:
  Engine engine_;
  InfoList opened_with_;
  DomainContext shared_;
  DeferredQueue deferred_{shared_};
  Memory &memory_;
  std::shared_ptr<const Hmem> hmem_;
};

class SoftwareDomain : public DomainCore {
 public:
  SoftwareDomain(const weft_instance *instance, struct fid *fid, const DomainSettings &settings)
      : DomainCore(instance, fid, settings, regions_), regions_(shared(), settings.mr) {}

  MrTable &regions() { return regions_; }

 protected:
  ~SoftwareDomain() = default;

 private:
  MrTable regions_;
};

}  // namespace weft::sdk

#endif
