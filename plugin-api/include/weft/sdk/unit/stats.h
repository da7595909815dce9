// SPDX-License-Identifier: BSD-2-Clause
// Stats: the counters of an object, such as a fabric, as tools read them: fi_open_ops() with
// WEFT_COUNTERS_OPS (weft/plugin.h) and `weft stats`. All comes from the declarations of the
// counters (weft/sdk/unit/counters.h).
//
// Example:
//    struct Counters : CounterSet {
//      Counter refused{*this, "connections_refused", "connection requests that were refused"};
//      Counter resent{*this, "packets_resent", "packets sent again after a loss"};
//    };
//    class Fabric final : public Object<Fabric, fid_fabric> {
//     public:
//      void refuse() { stats_->refused.add(); }
//      Stats<Counters> &stats() { return stats_; }
//      int close();
//      int ops_open(const char *name, uint64_t flags, void **ops, void *) {
//        return open_counters<Fabric>(name, flags, ops);
//      }
//
//     private:
//      Stats<Counters> stats_;
//    };
//    // What threads count often is counted apart, so that they share no cache line. The fabric's
//    // counters are the sum, also after the endpoint is closed.
//    class Endpoint {
//     public:
//      explicit Endpoint(Fabric &fabric) : part_(fabric.stats(), counters_) {}
//      void resend() { counters_.resent.add(); }
//
//     private:
//      Counters counters_;
//      Stats<Counters>::Part part_;
//    };
//
// A hook answers to a name of its own, because the object's own counters are found under
// WEFT_COUNTERS_OPS:
//
// Example:
//    struct DiceCounters : CounterSet {
//      Counter lost{*this, "messages_lost", "messages that the hook did not send"};
//    };
//    class Dice {
//     public:
//      static constexpr UnitInfo info{.name = "dice", .summary = "loses messages"};
//      Stats<DiceCounters> &stats() { return stats_; }
//      int ops_open(const weft_hook_link &link, struct fid *fid, const char *name, uint64_t flags,
//                   void **ops, void *context) {
//        if (is_counters_of<Dice>(name)) return open_hook_counters<Dice>(flags, ops);
//        return link.next.fid->ops_open(fid, name, flags, ops, context);
//      }
//
//     private:
//      Stats<DiceCounters> stats_;
//    };
//
// Counting takes no lock and no memory; reading and opening take a lock. Not for values per
// operation or per peer: the hook profile has those.
#ifndef WEFT_SDK_UNIT_STATS_H
#define WEFT_SDK_UNIT_STATS_H

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <weft/plugin.h>
#include <weft/sdk/unit/counters.h>
#include <weft/sdk/unit/hook.h>

#include <array>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace weft::sdk {

template <class Set>
class Stats {
 public:
  // Counters that belong to the sum as long as this lives. When it goes, their values stay in the
  // sum. `counters` outlives it; the Stats outlive both.
  class Part {
   public:
    Part(Stats &stats, const Set &counters) : stats_(stats), counters_(counters) {
      std::lock_guard lock(stats_.mutex_);
      next_ = stats_.first_;
      if (next_ != nullptr) next_->previous_ = this;
      stats_.first_ = this;
    }
    ~Part() {
      std::lock_guard lock(stats_.mutex_);
      for (size_t i = 0; i < stats_.entries_.count; ++i)
        stats_.counter(stats_.own_, i).add(stats_.counter(counters_, i).value());
      (previous_ != nullptr ? previous_->next_ : stats_.first_) = next_;
      if (next_ != nullptr) next_->previous_ = previous_;
    }
    Part(const Part &) = delete;
    Part &operator=(const Part &) = delete;

   private:
    friend Stats;
    Stats &stats_;
    const Set &counters_;
    Part *previous_ = nullptr, *next_ = nullptr;
  };

  Stats() = default;
  Stats(const Stats &) = delete;
  Stats &operator=(const Stats &) = delete;

  // The counters that all threads share: those of what happens rarely.
  Set *operator->() { return &own_; }
  Set &operator*() { return own_; }

  // weft_counters_ops
  size_t read(weft_counter *out, size_t count) const {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < entries_.count && i < count; ++i) {
      uint64_t sum = counter(own_, i).value();
      for (const Part *part = first_; part != nullptr; part = part->next_)
        sum += counter(part->counters_, i).value();
      out[i] = {names_[i].name, sum};
    }
    return entries_.count;
  }
  const char *describe(size_t index) const {
    return index < entries_.count ? names_[index].what : nullptr;
  }

 private:
  // The counter of a set at the place where own_ has its counter `index`.
  template <class Any>
  auto &counter(Any &set, size_t index) const {
    using Byte = std::conditional_t<std::is_const_v<Any>, const char, char>;
    using Found = std::conditional_t<std::is_const_v<Any>, const Counter, Counter>;
    const ptrdiff_t offset = reinterpret_cast<const char *>(names_[index].counter) -
                             reinterpret_cast<const char *>(&own_);
    return *reinterpret_cast<Found *>(reinterpret_cast<Byte *>(&set) + offset);
  }

  mutable std::mutex mutex_;  // guards the list of parts
  Part *first_ = nullptr;
  std::array<CounterEntry, sizeof(Set) / sizeof(Counter)> names_;  // no set has more
  CounterEntries entries_{names_};
  Set own_{entries_};
};

// Counters whose number and names only the run time knows, such as one for each rule of a file.
// They are declared before they are read.
//
// Example:
//    class Rules {
//     public:
//      explicit Rules(const std::vector<std::string> &texts) {
//        for (const std::string &text : texts) list_.declare(text, "calls that met this rule");
//      }
//      void met(size_t rule) { list_[rule].add(); }
//
//     private:
//      CounterList list_;
//    };
class CounterList {
 public:
  size_t declare(std::string name, std::string what) {
    counters_.emplace_back().name = std::move(name);
    counters_.back().what = std::move(what);
    return counters_.size() - 1;
  }
  Counter &operator[](size_t index) { return counters_[index].counter; }

  // weft_counters_ops
  size_t read(weft_counter *out, size_t count) const {
    for (size_t i = 0; i < counters_.size() && i < count; ++i)
      out[i] = {counters_[i].name.c_str(), counters_[i].counter.value()};
    return counters_.size();
  }
  const char *describe(size_t index) const {
    return index < counters_.size() ? counters_[index].what.c_str() : nullptr;
  }

 private:
  struct Named {
    std::string name, what;
    Counter counter;
  };
  std::deque<Named> counters_;
};

namespace stats_detail {

// `Owner::of(fid)` is what has stats().
template <class Owner>
inline constexpr weft_counters_ops kOps{
    .size = sizeof(weft_counters_ops),
    .read = [](struct fid *fid, weft_counter *out, size_t count) -> size_t {
      return Owner::of(fid).stats().read(out, out != nullptr ? count : 0);
    },
    .describe = [](struct fid *fid, size_t index) -> const char * {
      return Owner::of(fid).stats().describe(index);
    },
};

template <class T>
struct ObjectOwner {
  static T &of(struct fid *fid) { return *T::from(fid); }
};
template <class H>
struct HookOwner {
  static H &of(struct fid *fid) { return *static_cast<H *>(hook_link<H>(fid).hook_state); }
};

}  // namespace stats_detail

// fi_open_ops of an object with stats().
template <class T>
int open_counters(const char *name, uint64_t flags, void **ops) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_COUNTERS_OPS) return -FI_ENOSYS;
  *ops = const_cast<weft_counters_ops *>(&stats_detail::kOps<stats_detail::ObjectOwner<T>>);
  return 0;
}

// Whether a name is that of the counters of the hook class H.
template <class H>
bool is_counters_of(const char *name) {
  constexpr std::string_view prefix = WEFT_HOOK_COUNTERS_OPS;
  const std::string_view text(name != nullptr ? name : "");
  return text.starts_with(prefix) && text.substr(prefix.size()) == H::info.name;
}
// fi_open_ops with that name, on an object that the hook is on.
template <class H>
int open_hook_counters(uint64_t flags, void **ops) {
  if (ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  *ops = const_cast<weft_counters_ops *>(&stats_detail::kOps<stats_detail::HookOwner<H>>);
  return 0;
}

}  // namespace weft::sdk

#endif
