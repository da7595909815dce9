// SPDX-License-Identifier: BSD-2-Clause
//
// One-sided communication: every operation, every way to synchronise, windows of every kind that
// has its own memory.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::Block;
using client::seed;
using client::Session;

enum Sync { kFence, kPscw, kLock, kLockShared, kLockAll, kSyncs };
const char *const kSyncNames[] = {"fence", "post-start-complete-wait", "exclusive lock",
                                  "shared lock", "lock_all and flush"};

/// An epoch towards `target`, in which `origin` ranks may touch this one.
class Epoch {
 public:
  Epoch(MPI_Win win, Sync sync, int target, int origin) : win_(win), sync_(sync), target_(target) {
    if (sync == kFence) MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    if (sync == kPscw) {
      MPI_Group all, origins, targets;
      MPI_Win_get_group(win, &all);
      MPI_Group_incl(all, 1, &origin, &origins);
      MPI_Group_incl(all, 1, &target, &targets);
      MPI_Win_post(origins, 0, win);
      MPI_Win_start(targets, 0, win);
      MPI_Group_free(&origins);
      MPI_Group_free(&targets);
      MPI_Group_free(&all);
    }
    if (sync == kLock) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
    if (sync == kLockShared) MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
    if (sync == kLockAll) MPI_Win_lock_all(0, win);
  }
  /// Completes what was started, here and there; on return every rank may look at its own window.
  void end() {
    switch (sync_) {
      case kFence:
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win_);
        break;
      case kPscw:
        MPI_Win_complete(win_);
        MPI_Win_wait(win_);
        break;
      case kLockAll:
        MPI_Win_flush(target_, win_);
        MPI_Win_unlock_all(win_);
        break;
      default:
        MPI_Win_unlock(target_, win_);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

 private:
  MPI_Win win_;
  Sync sync_;
  int target_;
};

/// A window over memory of its own, in one of three kinds.
class Window {
 public:
  Window(int kind, std::size_t bytes) : kind_(kind), memory_(bytes + 64) {
    if (kind == 0) {
      data_ = memory_.data();
      MPI_Win_create(data_, static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win_);
    } else if (kind == 1) {
      MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &data_,
                       &win_);
    } else {
      data_ = memory_.data();
      MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win_);
      MPI_Win_attach(win_, data_, static_cast<MPI_Aint>(bytes));
      MPI_Get_address(data_, &base_);
    }
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bases_.resize(size);
    MPI_Allgather(&base_, 1, MPI_AINT, bases_.data(), 1, MPI_AINT, MPI_COMM_WORLD);
  }
  ~Window() {
    MPI_Barrier(MPI_COMM_WORLD);
    if (kind_ == 2) MPI_Win_detach(win_, data_);
    MPI_Win_free(&win_);
  }
  Window(const Window &) = delete;
  Window &operator=(const Window &) = delete;

  MPI_Win win() const { return win_; }
  char *data() { return static_cast<char *>(data_); }
  MPI_Aint at(int target, std::size_t offset) const {
    return bases_[target] + static_cast<MPI_Aint>(offset);
  }
  /// Our stores happen before any other rank's epoch, and the other ranks' stores before our loads.
  void settle() {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank(), 0, win_);
    MPI_Win_sync(win_);
    MPI_Win_unlock(rank(), win_);
    MPI_Barrier(MPI_COMM_WORLD);
  }

 private:
  static int rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }
  int kind_;
  std::vector<char> memory_;
  void *data_ = nullptr;
  MPI_Win win_ = MPI_WIN_NULL;
  MPI_Aint base_ = 0;
  std::vector<MPI_Aint> bases_;
};

/// Put to the right and get from the right, under each synchronisation.
void put_and_get(Session &session, Window &window, std::size_t length, Sync sync) {
  const int n = session.size();
  const int rank = session.rank();
  const int right = (rank + 1) % n;
  const int left = (rank + n - 1) % n;
  const int count = static_cast<int>(length);
  char what[100];
  std::snprintf(what, sizeof(what), "MPI_Put, %s, %zu bytes", kSyncNames[sync], length);
  std::memset(window.data(), 0x5c, 2 * length + 64);
  window.settle();
  Block out(length);
  out.fill(seed(rank, length, sync));
  Epoch put(window.win(), sync, right, left);
  MPI_Put(out.data(), count, MPI_BYTE, right, window.at(right, 16), count, MPI_BYTE, window.win());
  put.end();
  window.settle();
  client::expect(window.data() + 16, length, seed(left, length, sync), what);
  for (int i = 0; i < 16; ++i) {
    EXPECT(window.data()[i] == 0x5c && window.data()[16 + length + i] == 0x5c,
           "%s: it wrote beside its target", what);
  }
  std::snprintf(what, sizeof(what), "MPI_Get, %s, %zu bytes", kSyncNames[sync], length);
  MPI_Barrier(MPI_COMM_WORLD);
  Block in(length);
  Epoch get(window.win(), sync, right, left);
  MPI_Get(in.data(), count, MPI_BYTE, right, window.at(right, 16), count, MPI_BYTE, window.win());
  get.end();
  in.expect(length, seed(rank, length, sync), what);  // it is what we have put there
}

/// Many small accesses to every rank in one epoch, some with requests.
void many(Session &session, Window &window) {
  const int n = session.size();
  const int rank = session.rank();
  const int each = 64;
  std::vector<long long> mine(n * each);
  std::vector<long long> back(n * each, -1);
  std::vector<MPI_Request> requests;
  std::memset(window.data(), 0, n * each * 8);
  window.settle();
  MPI_Win_lock_all(0, window.win());
  for (int to = 0; to < n; ++to) {
    for (int i = 0; i < each; ++i) {
      const int k = to * each + i;
      mine[k] = static_cast<long long>(seed(rank, to, i));
      const MPI_Aint at = window.at(to, 8 * static_cast<std::size_t>(rank * each + i));
      if (i % 2) {
        MPI_Put(&mine[k], 1, MPI_LONG_LONG, to, at, 1, MPI_LONG_LONG, window.win());
      } else {
        requests.emplace_back();
        MPI_Rput(&mine[k], 1, MPI_LONG_LONG, to, at, 1, MPI_LONG_LONG, window.win(),
                 &requests.back());
      }
    }
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  MPI_Win_flush_local_all(window.win());
  MPI_Win_flush_all(window.win());
  requests.clear();
  for (int k = 0; k < n * each; ++k) {
    const MPI_Aint at = window.at(k / each, 8 * static_cast<std::size_t>(rank * each + k % each));
    requests.emplace_back();
    MPI_Rget(&back[k], 1, MPI_LONG_LONG, k / each, at, 1, MPI_LONG_LONG, window.win(),
             &requests.back());
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  MPI_Win_unlock_all(window.win());
  EXPECT(mine == back, "what MPI_Rget brings back is not what was put");
  window.settle();
  for (int from = 0; from < n; ++from) {
    for (int i = 0; i < each; ++i) {
      long long got = 0;
      std::memcpy(&got, window.data() + 8 * static_cast<std::size_t>(from * each + i), 8);
      EXPECT(got == static_cast<long long>(seed(from, rank, i)), "one of many puts is wrong");
    }
  }
}

/// All ranks accumulate into rank 0 at once, with each operation and datatype in turn.
template <typename Number>
void accumulate(Session &session, Window &window, MPI_Datatype type, const char *name) {
  const int n = session.size();
  const int count = 50;
  const auto value = [](int from, int i) {
    return static_cast<Number>((from * 5 + i * 3) % 11 + 1);
  };
  for (const MPI_Op op : {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD}) {
    Number *numbers = reinterpret_cast<Number *>(window.data());
    for (int i = 0; i < count; ++i) numbers[i] = 3;
    window.settle();
    std::vector<Number> mine(count);
    std::vector<Number> before(count);
    for (int i = 0; i < count; ++i) mine[i] = value(session.rank(), i);
    MPI_Win_lock_all(0, window.win());
    const int half = count / 2;
    MPI_Accumulate(mine.data(), half, type, 0, window.at(0, 0), half, type, op, window.win());
    MPI_Get_accumulate(mine.data() + half, half, type, before.data(), half, type, 0,
                       window.at(0, half * sizeof(Number)), half, type, op, window.win());
    MPI_Win_flush(0, window.win());
    MPI_Win_unlock_all(window.win());
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<Number> result(count, 0);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.win());
    MPI_Request request;
    MPI_Rget_accumulate(nullptr, 0, type, result.data(), count, type, 0, window.at(0, 0), count,
                        type, MPI_NO_OP, window.win(), &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock(0, window.win());
    for (int i = 0; i < count; ++i) {
      Number want = 3;
      for (int r = 0; r < n; ++r) {
        const Number v = value(r, i);
        if (op == MPI_SUM) want += v;
        if (op == MPI_PROD) want *= v;
        if (op == MPI_MAX) want = std::max(want, v);
        if (op == MPI_MIN) want = std::min(want, v);
      }
      EXPECT(result[i] == want, "MPI_Accumulate of %s: element %d is %g, expected %g", name, i,
             static_cast<double>(result[i]), static_cast<double>(want));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/// Tickets from one counter are all different and none is missing. A lock made of compare-and-swap
/// lets one rank in at a time.
void atomics(Session &session, Window &window) {
  const int n = session.size();
  const int each = session.quick() ? 60 : 500;
  std::memset(window.data(), 0, 64);
  window.settle();
  const int home = n - 1;
  std::vector<long long> tickets(each);
  const long long one = 1;
  MPI_Win_lock_all(0, window.win());
  for (long long &ticket : tickets) {
    MPI_Fetch_and_op(&one, &ticket, MPI_LONG_LONG, home, window.at(home, 0), MPI_SUM, window.win());
    MPI_Win_flush(home, window.win());
  }
  MPI_Win_unlock_all(window.win());
  std::vector<long long> all(static_cast<std::size_t>(n) * each);
  MPI_Allgather(tickets.data(), each, MPI_LONG_LONG, all.data(), each, MPI_LONG_LONG,
                MPI_COMM_WORLD);
  const std::set<long long> unique(all.begin(), all.end());
  EXPECT(unique.size() == all.size() && *unique.begin() == 0 &&
             *unique.rbegin() == static_cast<long long>(all.size()) - 1,
         "MPI_Fetch_and_op: %zu different tickets of %zu", unique.size(), all.size());

  // word 1 is the lock, word 2 what it protects: read, add, write.
  const long long me = session.rank() + 1;
  const long long none = 0;
  const int turns = session.quick() ? 5 : 50;
  MPI_Win_lock_all(0, window.win());
  for (int i = 0; i < turns; ++i) {
    for (long long found = -1; found != 0;) {
      MPI_Compare_and_swap(&me, &none, &found, MPI_LONG_LONG, home, window.at(home, 8),
                           window.win());
      MPI_Win_flush(home, window.win());
      EXPECT(found >= 0 && found <= n, "MPI_Compare_and_swap finds %lld", found);
    }
    long long number = 0;
    MPI_Get(&number, 1, MPI_LONG_LONG, home, window.at(home, 16), 1, MPI_LONG_LONG, window.win());
    MPI_Win_flush(home, window.win());
    ++number;
    MPI_Put(&number, 1, MPI_LONG_LONG, home, window.at(home, 16), 1, MPI_LONG_LONG, window.win());
    MPI_Win_flush(home, window.win());
    long long found = -1;
    MPI_Fetch_and_op(&none, &found, MPI_LONG_LONG, home, window.at(home, 8), MPI_REPLACE,
                     window.win());
    MPI_Win_flush(home, window.win());
    EXPECT(found == me, "the lock of rank %lld was held by %lld", me - 1, found - 1);
  }
  MPI_Win_unlock_all(window.win());
  window.settle();
  if (session.rank() == home) {
    long long number = 0;
    std::memcpy(&number, window.data() + 16, 8);
    EXPECT(number == static_cast<long long>(n) * turns, "%lld turns under the lock, expected %lld",
           number, static_cast<long long>(n) * turns);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// A datatype with holes at the target.
void strided(Session &session, Window &window) {
  const int n = session.size();
  const int right = (session.rank() + 1) % n;
  const int left = (session.rank() + n - 1) % n;
  constexpr int kBlocks = 100;
  MPI_Datatype type;
  MPI_Type_vector(kBlocks, 2, 5, MPI_INT, &type);
  MPI_Type_commit(&type);
  int *numbers = reinterpret_cast<int *>(window.data());
  for (int i = 0; i < kBlocks * 5; ++i) numbers[i] = -1;
  window.settle();
  std::vector<int> mine(2 * kBlocks);
  for (int i = 0; i < 2 * kBlocks; ++i) mine[i] = session.rank() * 1000 + i;
  Epoch epoch(window.win(), kFence, right, left);
  MPI_Put(mine.data(), 2 * kBlocks, MPI_INT, right, window.at(right, 0), 1, type, window.win());
  epoch.end();
  window.settle();
  for (int i = 0; i < kBlocks * 5; ++i) {
    const int want = i % 5 < 2 ? left * 1000 + i / 5 * 2 + i % 5 : -1;
    EXPECT(numbers[i] == want, "a put into a vector: element %d is %d, expected %d", i, numbers[i],
           want);
  }
  std::vector<int> back(2 * kBlocks, 0);
  Epoch again(window.win(), kFence, right, left);
  MPI_Get(back.data(), 2 * kBlocks, MPI_INT, right, window.at(right, 0), 1, type, window.win());
  again.end();
  EXPECT(back == mine, "a get out of a vector brings something else than was put");
  MPI_Type_free(&type);
}

}  // namespace

void client::run_onesided(Session &session) {
  const std::size_t bytes = std::size_t{3} << 20;
  for (int kind = 0; kind < 3; ++kind) {
    Window window(kind, bytes);
    std::vector<std::size_t> lengths = {1, 8, 100, 16384, 70001};
    lengths.push_back(session.quick() ? 300000 : 1400000);
    for (int sync = 0; sync < kSyncs; ++sync) {
      for (const std::size_t length : lengths) {
        put_and_get(session, window, length, static_cast<Sync>(sync));
        // An allocated window on one host is shared memory to Open MPI, and need not come over a
        // wire.
        if (kind == 0) session.moved(2 * length);
      }
    }
    many(session, window);
    accumulate<int>(session, window, MPI_INT, "int");
    accumulate<long long>(session, window, MPI_LONG_LONG, "long long");
    accumulate<double>(session, window, MPI_DOUBLE, "double");
    atomics(session, window);
    strided(session, window);
  }
}
