// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-profile/profile_fid.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace weft::profile {
namespace {

using namespace weft::sdk;

// The variables: these for each operation. Bit 31 marks variables that are not OFI's.
constexpr uint32_t kFirstVariable = 1u << 31;
struct Metric {
  const char *name, *help;
  uint64_t Endpoint::Sums::*member;
};
constexpr Metric kMetrics[] = {
#define WEFT_METRIC_(name, unit, help) {#name, help, &Endpoint::Sums::name},
    WEFT_PROFILE_POST_COUNTERS(WEFT_METRIC_)
#undef WEFT_METRIC_
};
constexpr size_t kVariables = kOperations * std::size(kMetrics);

const std::array<std::string, kVariables> &variable_names() {
  static const auto names = [] {
    std::array<std::string, kVariables> made;
    for (size_t i = 0; i < kVariables; ++i) {
      made[i] = std::string(kOperationNames[i / std::size(kMetrics)]) + "_" +
                kMetrics[i % std::size(kMetrics)].name;
    }
    return made;
  }();
  return names;
}

class ProfileFid final : public Object<ProfileFid, fid_profile> {
 public:
  ProfileFid(const weft_instance *instance, Registry &registry, const struct fid *of, void *context)
      : Object(instance, FI_CLASS_PROFILE, context), registry_(registry), of_(of) {
    static constexpr fi_profile_ops kOps{.size = sizeof kOps,
                                         .reset = &reset,
                                         .query_vars = &query_vars,
                                         .query_events = &query_events,
                                         .read_var = &read_var,
                                         .reg_callback = &reg_callback,
                                         .start_reads = &start_reads,
                                         .end_reads = &end_reads};
    base()->ops = c_table(fid_ops<ProfileFid>());
    c()->ops = c_table(&kOps);
  }
  int close() {
    delete this;
    return 0;
  }

 private:
  using Values = std::array<uint64_t, kVariables>;
  Values now() {
    const OperationSums sums = registry_.sums(of_);
    Values values;
    for (size_t i = 0; i < kVariables; ++i)
      values[i] = sums[i / std::size(kMetrics)].*kMetrics[i % std::size(kMetrics)].member;
    return values;
  }
  static void reset(fid_profile *fid, uint64_t) {
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    self.start_ = self.now();
    if (self.moment_ != nullptr) *self.moment_ = self.start_;
  }
  static ssize_t query_vars(fid_profile *, fi_profile_desc *list, size_t *count) {
    if (count == nullptr) return -FI_EINVAL;
    const size_t room = std::exchange(*count, kVariables);
    if (list == nullptr) return 0;
    const size_t listed = std::min(room, kVariables);
    for (size_t i = 0; i < listed; ++i) {
      list[i] = {.id = kFirstVariable + static_cast<uint32_t>(i),
                 .datatype_sel = fi_primitive_type,
                 .datatype = {.primitive = FI_UINT64},
                 .size = sizeof(uint64_t),
                 .name = variable_names()[i].c_str(),
                 .desc = kMetrics[i % std::size(kMetrics)].help};
    }
    return static_cast<ssize_t>(listed);
  }
  static ssize_t query_events(fid_profile *, fi_profile_desc *, size_t *count) {
    if (count == nullptr) return -FI_EINVAL;
    *count = 0;  // the hook trace shows single operations
    return 0;
  }
  static ssize_t read_var(fid_profile *fid, uint32_t id, void *data, size_t *size) {
    if (data == nullptr || size == nullptr) return -FI_EINVAL;
    if (id < kFirstVariable || id - kFirstVariable >= kVariables) return -FI_EINVAL;
    if (std::exchange(*size, sizeof(uint64_t)) < sizeof(uint64_t)) return -FI_ETOOSMALL;
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    const Values values = self.moment_ != nullptr ? *self.moment_ : self.now();
    const uint64_t value = values[id - kFirstVariable] - self.start_[id - kFirstVariable];
    std::memcpy(data, &value, sizeof value);
    return 0;
  }
  static int reg_callback(fid_profile *, uint32_t,
                          int (*)(fid_profile *, fi_profile_desc *, void *, size_t, void *),
                          void *) {
    return -FI_EINVAL;  // there are no events
  }
  static void start_reads(fid_profile *fid, uint64_t) {
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    self.moment_.reset(new (std::nothrow) Values(self.now()));
  }
  static void end_reads(fid_profile *fid, uint64_t) {
    ProfileFid &self = *from(fid);
    std::lock_guard lock(self.mutex_);
    self.moment_ = nullptr;
  }

  Registry &registry_;
  const struct fid *const of_;
  std::mutex mutex_;
  Values start_{};
  std::unique_ptr<Values> moment_;  // between start_reads and end_reads
};

}  // namespace

fid_profile *open_profile(const weft_instance *instance, Registry &registry, const struct fid *of,
                          void *context) {
  return (new ProfileFid(instance, registry, of, context))->c();
}

}  // namespace weft::profile
