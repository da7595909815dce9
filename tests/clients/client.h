// SPDX-License-Identifier: BSD-2-Clause
//
// What the parts of mpi_client share: a session, which at its end writes down what carried the
// messages; data that tell where they belong; and errors with a text.
//
// Example:
//     void run_mine(Session &session) {  // declared in parts.h, named in mpi_client.cc
//       const int other = session.rank() ^ 1;
//       Block out(100), in(100);
//       out.fill(seed(session.rank()));
//       in.clear();
//       MPI_Sendrecv(out.data(), 100, MPI_BYTE, other, 1, in.data(), 100, MPI_BYTE, other, 1,
//                    MPI_COMM_WORLD, MPI_STATUS_IGNORE);
//       in.expect(100, seed(other), "the message of my neighbour");
//       session.moved(100);
//     }
//
// Not for programs that may not depend on MPI, and not a test framework: the first fault ends all
// ranks.

#ifndef WEFT_TESTS_CLIENTS_CLIENT_H_
#define WEFT_TESTS_CLIENTS_CLIENT_H_

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace client {

/// Prints "rank R: FAILED: ..." and ends all ranks with status 1.
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/// Fails unless `condition` holds.
#define EXPECT(condition, ...)                     \
  do {                                             \
    if (!(condition)) ::client::fail(__VA_ARGS__); \
  } while (0)

/// Numbers from a seed, the same on every rank (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// One of 0 ... end - 1.
  std::uint64_t below(std::uint64_t end) { return next() % end; }
  /// A length: every order of magnitude up to `max` is as likely as another.
  std::size_t length(std::size_t max);

 private:
  std::uint64_t state_;
};

/// One seed out of several numbers, such as source, target, round.
template <typename... Numbers>
std::uint64_t seed(Numbers... numbers) {
  std::uint64_t all = 0x243f6a8885a308d3;
  ((all = Random(all ^ static_cast<std::uint64_t>(numbers)).next()), ...);
  return all;
}

/// Fills with a pattern that depends on the seed and the place.
void fill(void *bytes, std::size_t size, std::uint64_t seed);
/// Fails, with the first wrong place, unless the bytes are those of fill().
void expect(const void *bytes, std::size_t size, std::uint64_t seed, const char *what);

/// Bytes with a guard behind them that must stay as it is.
class Block {
 public:
  explicit Block(std::size_t size);
  char *data() { return bytes_.data(); }
  std::size_t size() const { return size_; }
  void fill(std::uint64_t seed) { client::fill(data(), size_, seed); }
  /// Before a receive: nothing of what is expected is there yet.
  void clear();
  /// The first `length` bytes are those of fill(), all behind them are as clear() left them.
  void expect(std::size_t length, std::uint64_t seed, const char *what);
  /// Nothing behind the first `length` bytes, or behind the block, was written.
  void expect_guard(std::size_t length, const char *what) const;
  void expect_guard(const char *what) const { expect_guard(size_, what); }

 private:
  std::size_t size_;
  std::vector<char> bytes_;
};

/// MPI from beginning to end. Options: --quick (less of everything), --seed N.
class Session {
 public:
  Session(int argc, char **argv, int thread_level = MPI_THREAD_SINGLE);
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool quick() const { return quick_; }
  std::uint64_t seed() const { return seed_; }

  /// Runs one part and waits for the other ranks. An error in it is printed with its name.
  void run(const char *name, void (*part)(Session &));

  /// Counts payload that must have come over a wire. finish() writes the sum down; the sockets must
  /// have moved as much.
  void moved(std::size_t bytes) { moved_ += bytes; }

  /// Writes the account of this rank into the folder WEFT_CLIENTS_ACCOUNTS, if there is one: the
  /// libfabric and the plugins that this process has mapped, Open MPI's transports, and the bytes
  /// that its sockets have moved. Then ends MPI.
  int finish();

 private:
  void write_counts(const std::string &folder) const;

  int rank_ = 0;
  int size_ = 0;
  bool quick_ = false;
  std::uint64_t seed_ = 1;
  std::uint64_t moved_ = 0;
};

}  // namespace client

#endif  // WEFT_TESTS_CLIENTS_CLIENT_H_
