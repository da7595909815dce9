// SPDX-License-Identifier: BSD-2-Clause
//
// Every collective operation of MPI 3.1, blocking and not, with and without MPI_IN_PLACE, against
// what each rank can compute alone.
#include <algorithm>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::seed;
using client::Session;

using Numbers = std::vector<long long>;

/// The collective in its blocking form, or the other and MPI_Wait.
#define RUN(name, lower, ...)                \
  do {                                       \
    if (nonblocking_) {                      \
      MPI_Request request;                   \
      MPI_I##lower(__VA_ARGS__, &request);   \
      MPI_Wait(&request, MPI_STATUS_IGNORE); \
    } else {                                 \
      MPI_##name(__VA_ARGS__);               \
    }                                        \
  } while (0)

class Collectives {
 public:
  Collectives(Session &session, MPI_Comm comm, int count, bool nonblocking)
      : session_(session), comm_(comm), count_(count), nonblocking_(nonblocking) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }

  void all() {
    rooted();
    gathers();
    exchanges();
    reductions();
    scans();
    RUN(Barrier, barrier, comm_);
  }

 private:
  static constexpr long long kHole = -77;

  /// Element i of what `from` has for `to`.
  long long value(int from, int to, int i) const {
    return static_cast<long long>(seed(count_, from, to, i) % 1000003);
  }
  Numbers values(int from, int to, int count) const {
    Numbers numbers(count);
    for (int i = 0; i < count; ++i) numbers[i] = value(from, to, i);
    return numbers;
  }
  /// How many elements rank r has in the v-forms: not as many as its neighbour, sometimes none.
  int part(int r) const { return count_ == 0 ? 0 : (r * 5 + 3) % 7 * count_ / 4; }
  int part(int from, int to) const {
    return count_ == 0 ? 0 : (from * 3 + to * 5) % 4 * count_ / 3;
  }

  void same(const long long *got, const Numbers &want, const char *what) const {
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT(got[i] == want[i], "%s%s, %d elements, %d ranks: element %zu is %lld, expected %lld",
             what, nonblocking_ ? " (non-blocking)" : "", count_, size_, i, got[i], want[i]);
    }
  }
  void same(const Numbers &got, const Numbers &want, const char *what) const {
    EXPECT(got.size() == want.size(), "%s: wrong size in the test itself", what);
    same(got.data(), want, what);
  }

  void rooted() {
    for (int root = 0; root < size_; root += std::max(1, size_ - 1)) {
      const bool here = rank_ == root;
      Numbers buffer = here ? values(root, 0, count_) : Numbers(count_, kHole);
      RUN(Bcast, bcast, buffer.data(), count_, MPI_LONG_LONG, root, comm_);
      same(buffer, values(root, 0, count_), "MPI_Bcast");
      if (!here) session_.moved(count_ * sizeof(long long));

      // Gather and scatter, in one form for all and in the v-form with gaps.
      Numbers mine = values(rank_, root, count_);
      Numbers all(static_cast<std::size_t>(count_) * size_, kHole);
      RUN(Gather, gather, mine.data(), count_, MPI_LONG_LONG, all.data(), count_, MPI_LONG_LONG,
          root, comm_);
      Numbers want;
      for (int r = 0; r < size_; ++r) append(want, values(r, root, count_));
      if (here) {
        same(all, want, "MPI_Gather");
        all = want;
        for (int i = 0; i < count_; ++i)
          all[static_cast<std::size_t>(rank_) * count_ + i] = mine[i];
      }
      if (here) {
        RUN(Gather, gather, MPI_IN_PLACE, 0, MPI_LONG_LONG, all.data(), count_, MPI_LONG_LONG, root,
            comm_);
        same(all, want, "MPI_Gather in place");
      } else {
        RUN(Gather, gather, mine.data(), count_, MPI_LONG_LONG, nullptr, 0, MPI_LONG_LONG, root,
            comm_);
      }

      Numbers to_all;
      for (int r = 0; r < size_; ++r) append(to_all, values(root, r, count_));
      Numbers got(count_, kHole);
      RUN(Scatter, scatter, to_all.data(), count_, MPI_LONG_LONG, got.data(), count_, MPI_LONG_LONG,
          root, comm_);
      same(got, values(root, rank_, count_), "MPI_Scatter");
      if (here) {
        RUN(Scatter, scatter, to_all.data(), count_, MPI_LONG_LONG, MPI_IN_PLACE, 0, MPI_LONG_LONG,
            root, comm_);
      } else {
        std::fill(got.begin(), got.end(), kHole);
        RUN(Scatter, scatter, nullptr, 0, MPI_LONG_LONG, got.data(), count_, MPI_LONG_LONG, root,
            comm_);
        same(got, values(root, rank_, count_), "MPI_Scatter in place at the root");
      }

      std::vector<int> counts(size_);
      std::vector<int> places(size_);
      int end = 0;
      for (int r = 0; r < size_; ++r) {
        counts[r] = part(r);
        places[r] = end;
        end += counts[r] + r % 2;
      }
      mine = values(rank_, root, part(rank_));
      all.assign(end, kHole);
      RUN(Gatherv, gatherv, mine.data(), part(rank_), MPI_LONG_LONG, all.data(), counts.data(),
          places.data(), MPI_LONG_LONG, root, comm_);
      want.assign(end, kHole);
      for (int r = 0; r < size_; ++r) put(want, places[r], values(r, root, counts[r]));
      if (here) same(all, want, "MPI_Gatherv");
      to_all.assign(end, kHole);
      for (int r = 0; r < size_; ++r) put(to_all, places[r], values(root, r, counts[r]));
      got.assign(part(rank_), kHole);
      RUN(Scatterv, scatterv, to_all.data(), counts.data(), places.data(), MPI_LONG_LONG,
          got.data(), part(rank_), MPI_LONG_LONG, root, comm_);
      same(got, values(root, rank_, part(rank_)), "MPI_Scatterv");
    }
  }

  void gathers() {
    Numbers want;
    for (int r = 0; r < size_; ++r) append(want, values(r, 0, count_));
    Numbers all(want.size(), kHole);
    const Numbers mine = values(rank_, 0, count_);
    RUN(Allgather, allgather, mine.data(), count_, MPI_LONG_LONG, all.data(), count_, MPI_LONG_LONG,
        comm_);
    same(all, want, "MPI_Allgather");
    session_.moved(static_cast<std::size_t>(size_ - 1) * count_ * sizeof(long long));
    std::fill(all.begin(), all.end(), kHole);
    put(all, rank_ * count_, mine);
    RUN(Allgather, allgather, MPI_IN_PLACE, 0, MPI_LONG_LONG, all.data(), count_, MPI_LONG_LONG,
        comm_);
    same(all, want, "MPI_Allgather in place");

    std::vector<int> counts(size_);
    std::vector<int> places(size_);
    int end = 0;
    for (int r = size_ - 1; r >= 0; --r) {
      counts[r] = part(r);
      places[r] = end;
      end += counts[r] + r % 3;
    }
    want.assign(end, kHole);
    for (int r = 0; r < size_; ++r) put(want, places[r], values(r, 1, counts[r]));
    const Numbers piece = values(rank_, 1, part(rank_));
    all.assign(end, kHole);
    RUN(Allgatherv, allgatherv, piece.data(), part(rank_), MPI_LONG_LONG, all.data(), counts.data(),
        places.data(), MPI_LONG_LONG, comm_);
    same(all, want, "MPI_Allgatherv");
    all.assign(end, kHole);
    put(all, places[rank_], piece);
    RUN(Allgatherv, allgatherv, MPI_IN_PLACE, 0, MPI_LONG_LONG, all.data(), counts.data(),
        places.data(), MPI_LONG_LONG, comm_);
    same(all, want, "MPI_Allgatherv in place");
  }

  void exchanges() {
    Numbers out;
    Numbers want;
    for (int r = 0; r < size_; ++r) {
      append(out, values(rank_, r, count_));
      append(want, values(r, rank_, count_));
    }
    Numbers in(want.size(), kHole);
    RUN(Alltoall, alltoall, out.data(), count_, MPI_LONG_LONG, in.data(), count_, MPI_LONG_LONG,
        comm_);
    same(in, want, "MPI_Alltoall");
    session_.moved(static_cast<std::size_t>(size_ - 1) * count_ * sizeof(long long));
    RUN(Alltoall, alltoall, MPI_IN_PLACE, 0, MPI_LONG_LONG, out.data(), count_, MPI_LONG_LONG,
        comm_);
    same(out, want, "MPI_Alltoall in place");

    std::vector<int> out_counts(size_), out_places(size_), in_counts(size_), in_places(size_);
    std::vector<int> out_bytes(size_), in_bytes(size_);
    const std::vector<MPI_Datatype> types(size_, MPI_LONG_LONG);
    int out_end = 0;
    int in_end = 0;
    for (int r = 0; r < size_; ++r) {
      out_counts[r] = part(rank_, r);
      in_counts[r] = part(r, rank_);
      out_places[r] = out_end;
      in_places[r] = in_end;
      out_bytes[r] = out_end * 8;
      in_bytes[r] = in_end * 8;
      out_end += out_counts[r] + 1;
      in_end += in_counts[r] + 2;
    }
    out.assign(out_end, kHole);
    want.assign(in_end, kHole);
    for (int r = 0; r < size_; ++r) {
      put(out, out_places[r], values(rank_, r, out_counts[r]));
      put(want, in_places[r], values(r, rank_, in_counts[r]));
    }
    in.assign(in_end, kHole);
    RUN(Alltoallv, alltoallv, out.data(), out_counts.data(), out_places.data(), MPI_LONG_LONG,
        in.data(), in_counts.data(), in_places.data(), MPI_LONG_LONG, comm_);
    same(in, want, "MPI_Alltoallv");
    in.assign(in_end, kHole);
    RUN(Alltoallw, alltoallw, out.data(), out_counts.data(), out_bytes.data(), types.data(),
        in.data(), in_counts.data(), in_bytes.data(), types.data(), comm_);
    same(in, want, "MPI_Alltoallw");
  }

  /// a then b: multiplication of the maps x -> (a >> 10) x + (a & 1023), which does not commute.
  static long long compose(long long a, long long b) {
    const long long scale = (a >> 10) * (b >> 10) & 1023;
    const long long offset = ((a & 1023) * (b >> 10) + (b & 1023)) & 1023;
    return scale << 10 | offset;
  }
  static void compose_all(void *in, void *inout, int *length, MPI_Datatype *) {
    for (int i = 0; i < *length; ++i) {
      long long &right = static_cast<long long *>(inout)[i];
      right = compose(static_cast<long long *>(in)[i], right);
    }
  }
  static long long apply(MPI_Op op, MPI_Op own, long long a, long long b) {
    if (op == own) return compose(a, b);
    if (op == MPI_SUM) return a + b;
    if (op == MPI_MAX) return std::max(a, b);
    if (op == MPI_MIN) return std::min(a, b);
    if (op == MPI_BXOR) return a ^ b;
    if (op == MPI_BAND) return a & b;
    if (op == MPI_BOR) return a | b;
    if (op == MPI_LAND) return a && b;
    if (op == MPI_LOR) return a || b;
    if (op == MPI_LXOR) return !a != !b;
    return static_cast<long long>(static_cast<unsigned long long>(a) *
                                  static_cast<unsigned long long>(b));
  }
  /// The reduction of what ranks begin ... end - 1 have for `to`.
  Numbers reduced(MPI_Op op, MPI_Op own, int begin, int end, int count) const {
    Numbers result = values(begin, 0, count);
    for (int r = begin + 1; r < end; ++r) {
      for (int i = 0; i < count; ++i) result[i] = apply(op, own, result[i], value(r, 0, i));
    }
    return result;
  }

  void reductions() {
    MPI_Op own;
    MPI_Op_create(&compose_all, 0, &own);
    for (const MPI_Op op : {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_BXOR, MPI_BAND, MPI_BOR,
                            MPI_LAND, MPI_LOR, MPI_LXOR, own}) {
      if (count_ > 1000 && op != MPI_SUM && op != own) continue;
      const Numbers want = reduced(op, own, 0, size_, count_);
      Numbers mine = values(rank_, 0, count_);
      Numbers got(count_, kHole);
      RUN(Allreduce, allreduce, mine.data(), got.data(), count_, MPI_LONG_LONG, op, comm_);
      same(got, want, "MPI_Allreduce");
      got = mine;
      RUN(Allreduce, allreduce, MPI_IN_PLACE, got.data(), count_, MPI_LONG_LONG, op, comm_);
      same(got, want, "MPI_Allreduce in place");
      const int root = size_ - 1;
      got.assign(count_, kHole);
      RUN(Reduce, reduce, mine.data(), got.data(), count_, MPI_LONG_LONG, op, root, comm_);
      same(got, rank_ == root ? want : Numbers(count_, kHole), "MPI_Reduce");
      got = mine;
      if (rank_ == root) {
        RUN(Reduce, reduce, MPI_IN_PLACE, got.data(), count_, MPI_LONG_LONG, op, root, comm_);
      } else {
        RUN(Reduce, reduce, mine.data(), nullptr, count_, MPI_LONG_LONG, op, root, comm_);
      }
      if (rank_ == root) same(got, want, "MPI_Reduce in place");
    }

    // Each rank keeps its own piece of the result.
    std::vector<int> counts(size_);
    int total = 0;
    int begin = 0;
    for (int r = 0; r < size_; ++r) {
      counts[r] = part(r);
      if (r == rank_) begin = total;
      total += counts[r];
    }
    for (const MPI_Op op : {MPI_SUM, own}) {
      Numbers whole = reduced(op, own, 0, size_, total);
      Numbers mine = values(rank_, 0, total);
      Numbers got(counts[rank_], kHole);
      RUN(Reduce_scatter, reduce_scatter, mine.data(), got.data(), counts.data(), MPI_LONG_LONG, op,
          comm_);
      same(got, Numbers(whole.begin() + begin, whole.begin() + begin + counts[rank_]),
           "MPI_Reduce_scatter");
      const int equal = count_ * size_;
      whole = reduced(op, own, 0, size_, equal);
      mine = values(rank_, 0, equal);
      got.assign(count_, kHole);
      const Numbers want(whole.begin() + rank_ * count_, whole.begin() + (rank_ + 1) * count_);
      RUN(Reduce_scatter_block, reduce_scatter_block, mine.data(), got.data(), count_,
          MPI_LONG_LONG, op, comm_);
      same(got, want, "MPI_Reduce_scatter_block");
      RUN(Reduce_scatter_block, reduce_scatter_block, MPI_IN_PLACE, mine.data(), count_,
          MPI_LONG_LONG, op, comm_);
      same(mine.data(), want, "MPI_Reduce_scatter_block in place");
    }
    MPI_Op_free(&own);

    struct Place {
      double value;
      int index;
    };
    std::vector<Place> mine(count_), most(count_), least(count_);
    for (int i = 0; i < count_; ++i) mine[i] = {static_cast<double>(value(rank_, 0, i) % 5), rank_};
    RUN(Allreduce, allreduce, mine.data(), most.data(), count_, MPI_DOUBLE_INT, MPI_MAXLOC, comm_);
    RUN(Allreduce, allreduce, mine.data(), least.data(), count_, MPI_DOUBLE_INT, MPI_MINLOC, comm_);
    for (int i = 0; i < count_; ++i) {
      int high = 0;
      int low = 0;
      for (int r = 1; r < size_; ++r) {
        if (value(r, 0, i) % 5 > value(high, 0, i) % 5) high = r;
        if (value(r, 0, i) % 5 < value(low, 0, i) % 5) low = r;
      }
      EXPECT(most[i].index == high && most[i].value == value(high, 0, i) % 5,
             "MPI_MAXLOC: %g at %d", most[i].value, most[i].index);
      EXPECT(least[i].index == low && least[i].value == value(low, 0, i) % 5,
             "MPI_MINLOC: %g at %d", least[i].value, least[i].index);
    }
  }

  void scans() {
    MPI_Op own;
    MPI_Op_create(&compose_all, 0, &own);
    for (const MPI_Op op : {MPI_SUM, own}) {
      Numbers mine = values(rank_, 0, count_);
      Numbers got(count_, kHole);
      RUN(Scan, scan, mine.data(), got.data(), count_, MPI_LONG_LONG, op, comm_);
      same(got, reduced(op, own, 0, rank_ + 1, count_), "MPI_Scan");
      got.assign(count_, kHole);
      RUN(Exscan, exscan, mine.data(), got.data(), count_, MPI_LONG_LONG, op, comm_);
      if (rank_ > 0) same(got, reduced(op, own, 0, rank_, count_), "MPI_Exscan");
      RUN(Scan, scan, MPI_IN_PLACE, mine.data(), count_, MPI_LONG_LONG, op, comm_);
      same(mine, reduced(op, own, 0, rank_ + 1, count_), "MPI_Scan in place");
    }
    MPI_Op_free(&own);
  }

  static void append(Numbers &all, const Numbers &more) {
    all.insert(all.end(), more.begin(), more.end());
  }
  static void put(Numbers &all, int at, const Numbers &piece) {
    std::copy(piece.begin(), piece.end(), all.begin() + at);
  }

  Session &session_;
  MPI_Comm comm_;
  int count_;
  bool nonblocking_;
  int rank_ = 0;
  int size_ = 0;
};

/// The neighbourhood collectives, on a ring: what goes to the left arrives from the right.
void neighbours(Session &session, int count, bool nonblocking_) {
  MPI_Comm ring;
  const int n = session.size();
  const int periods = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &n, &periods, 0, &ring);
  int left = 0;
  int right = 0;
  MPI_Cart_shift(ring, 0, 1, &left, &right);
  const auto value = [](int from, int slot, int i) {
    return static_cast<long long>(from * 1000003 + slot * 7919 + i);
  };
  std::vector<long long> out(2 * count), in(2 * count, -1);
  for (int slot = 0; slot < 2; ++slot) {
    for (int i = 0; i < count; ++i) out[slot * count + i] = value(session.rank(), slot, i);
  }
  const auto expect = [&](int left_slot, int right_slot, const char *what) {
    for (int i = 0; i < count; ++i) {
      EXPECT(in[i] == value(left, left_slot, i) && in[count + i] == value(right, right_slot, i),
             "%s: element %d is wrong", what, i);
    }
    std::fill(in.begin(), in.end(), -1);
  };
  const int counts[] = {count, count};
  const int places[] = {0, count};
  const MPI_Aint bytes[] = {0, static_cast<MPI_Aint>(count) * 8};
  const MPI_Datatype types[] = {MPI_LONG_LONG, MPI_LONG_LONG};
  RUN(Neighbor_allgather, neighbor_allgather, out.data(), count, MPI_LONG_LONG, in.data(), count,
      MPI_LONG_LONG, ring);
  expect(0, 0, "MPI_Neighbor_allgather");
  RUN(Neighbor_allgatherv, neighbor_allgatherv, out.data(), count, MPI_LONG_LONG, in.data(), counts,
      places, MPI_LONG_LONG, ring);
  expect(0, 0, "MPI_Neighbor_allgatherv");
  if (n > 2) {  // with two, left and right are the same rank and MPI 3.1 leaves open which is which
    RUN(Neighbor_alltoall, neighbor_alltoall, out.data(), count, MPI_LONG_LONG, in.data(), count,
        MPI_LONG_LONG, ring);
    expect(1, 0, "MPI_Neighbor_alltoall");
    RUN(Neighbor_alltoallv, neighbor_alltoallv, out.data(), counts, places, MPI_LONG_LONG,
        in.data(), counts, places, MPI_LONG_LONG, ring);
    expect(1, 0, "MPI_Neighbor_alltoallv");
    RUN(Neighbor_alltoallw, neighbor_alltoallw, out.data(), counts, bytes, types, in.data(), counts,
        bytes, types, ring);
    expect(1, 0, "MPI_Neighbor_alltoallw");
  }
  MPI_Comm_free(&ring);
}

/// Many different ones in flight at once, on the same communicator.
void overlapping(Session &session) {
  constexpr int kMany = 24;
  const int n = session.size();
  std::vector<MPI_Request> requests;
  std::vector<std::vector<int>> in(kMany, std::vector<int>(n * 100, -1));
  std::vector<std::vector<int>> out(kMany, std::vector<int>(n * 100));
  for (int k = 0; k < kMany; ++k) {
    for (int i = 0; i < n * 100; ++i) out[k][i] = session.rank() * 1000000 + k * 10000 + i;
    requests.emplace_back();
    switch (k % 4) {
      case 0:
        MPI_Ibarrier(MPI_COMM_WORLD, &requests.back());
        break;
      case 1:
        MPI_Iallreduce(out[k].data(), in[k].data(), 100, MPI_INT, MPI_MAX, MPI_COMM_WORLD,
                       &requests.back());
        break;
      case 2:
        MPI_Ialltoall(out[k].data(), 100, MPI_INT, in[k].data(), 100, MPI_INT, MPI_COMM_WORLD,
                      &requests.back());
        break;
      default:
        MPI_Ibcast(out[k].data(), 100, MPI_INT, k % n, MPI_COMM_WORLD, &requests.back());
    }
  }
  MPI_Waitall(kMany, requests.data(), MPI_STATUSES_IGNORE);
  for (int k = 0; k < kMany; ++k) {
    for (int i = 0; i < 100; ++i) {
      if (k % 4 == 1)
        EXPECT(in[k][i] == (n - 1) * 1000000 + k * 10000 + i, "one of many MPI_Iallreduce: wrong");
      if (k % 4 == 3)
        EXPECT(out[k][i] == k % n * 1000000 + k * 10000 + i, "one of many MPI_Ibcast: wrong");
    }
    for (int i = 0; k % 4 == 2 && i < n * 100; ++i) {
      EXPECT(in[k][i] == i / 100 * 1000000 + k * 10000 + session.rank() * 100 + i % 100,
             "one of many MPI_Ialltoall: wrong");
    }
  }
}

}  // namespace

void client::run_collectives(Session &session) {
  std::vector<int> counts = {0, 1, 3, 170, 2050};
  if (session.quick()) {
    counts.push_back(20000);
  } else {
    for (const int more : {4097, 65537, 300000}) counts.push_back(more);
  }
  for (const bool nonblocking : {false, true}) {
    for (const int count : counts) {
      Collectives(session, MPI_COMM_WORLD, count, nonblocking).all();
      neighbours(session, count, nonblocking);
    }
    // Not all ranks, and in another order.
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, session.rank() % 2, -session.rank(), &half);
    Collectives(session, half, 333, nonblocking).all();
    MPI_Comm_free(&half);
  }
  overlapping(session);
}
