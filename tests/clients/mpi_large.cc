// SPDX-License-Identifier: BSD-2-Clause
//
// Long messages, contiguous and in derived datatypes of every kind.
#include <cstring>
#include <vector>

#include "tests/clients/client.h"
#include "tests/clients/parts.h"

namespace {

using client::Block;
using client::seed;
using client::Session;

/// From each even rank to its odd neighbour, and back.
void contiguous(Session &session, std::size_t length) {
  const int other = session.rank() ^ 1;
  if (other >= session.size()) return;
  Block block(length);
  for (const int from : {session.rank() & ~1, session.rank() | 1}) {
    const std::uint64_t data = seed(session.seed(), from, length);
    if (from == session.rank()) {
      block.fill(data);
      MPI_Send(block.data(), static_cast<int>(length), MPI_BYTE, other, 1, MPI_COMM_WORLD);
    } else {
      block.clear();
      MPI_Recv(block.data(), static_cast<int>(length), MPI_BYTE, other, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      block.expect(length, data, "a long message");
      session.moved(length);
    }
  }
}

/// Several long ones at once, both ways.
void together(Session &session, std::size_t length, int many) {
  const int other = session.rank() ^ 1;
  if (other >= session.size()) return;
  std::vector<Block> in(many, Block(length));
  std::vector<Block> out(many, Block(length));
  std::vector<MPI_Request> requests(2 * many);
  for (int i = 0; i < many; ++i) {
    out[i].fill(seed(session.rank(), i));
    MPI_Isend(out[i].data(), static_cast<int>(length), MPI_BYTE, other, i, MPI_COMM_WORLD,
              &requests[i]);
  }
  for (int i = 0; i < many; ++i) {
    MPI_Irecv(in[i].data(), static_cast<int>(length), MPI_BYTE, other, i, MPI_COMM_WORLD,
              &requests[many + i]);
  }
  MPI_Waitall(2 * many, requests.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < many; ++i)
    in[i].expect(length, seed(other, i), "one of several long messages");
  session.moved(length * many);
}

/// A message of a type has the bytes that MPI_Pack takes. Sends `count` of the type and receives
/// bytes; sends bytes and receives the type; sends and receives the type.
void derived(Session &session, const char *name, MPI_Datatype type, int count) {
  const int other = session.rank() ^ 1;
  MPI_Type_commit(&type);
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  int size = 0;
  MPI_Type_get_extent(type, &lower, &extent);
  MPI_Type_size(type, &size);
  EXPECT(lower == 0, "%s begins at %ld", name, static_cast<long>(lower));
  MPI_Aint true_lower = 0;
  MPI_Aint true_extent = 0;
  MPI_Type_get_true_extent(type, &true_lower, &true_extent);
  const std::size_t room = extent * (count - 1) + true_lower + true_extent;
  const int bytes = size * count;
  if (other < session.size()) {
    const auto packed = [&](Block &block) {
      std::vector<char> all(bytes);
      int at = 0;
      MPI_Pack(block.data(), count, type, all.data(), bytes, &at, MPI_COMM_SELF);
      EXPECT(at == bytes, "%s: MPI_Pack gives %d bytes of %d", name, at, bytes);
      return all;
    };
    // What the other has, without its holes.
    Block theirs(room);
    theirs.fill(seed(other, bytes));
    const std::vector<char> wanted = packed(theirs);
    Block mine(room);
    mine.fill(seed(session.rank(), bytes));
    const std::vector<char> flat = packed(mine);

    Block in(bytes);
    MPI_Sendrecv(mine.data(), count, type, other, 2, in.data(), bytes, MPI_BYTE, other, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(std::memcmp(in.data(), wanted.data(), bytes) == 0,
           "%s: sent as the type, received as bytes: wrong data", name);
    in.expect_guard(name);

    for (const bool both : {false, true}) {
      Block spread(room);
      spread.clear();
      const std::vector<char> untouched(spread.data(), spread.data() + room);
      MPI_Status status;
      if (both) {
        MPI_Sendrecv(mine.data(), count, type, other, 3, spread.data(), count, type, other, 3,
                     MPI_COMM_WORLD, &status);
      } else {
        MPI_Sendrecv(flat.data(), bytes, MPI_BYTE, other, 3, spread.data(), count, type, other, 3,
                     MPI_COMM_WORLD, &status);
      }
      int got = 0;
      MPI_Get_count(&status, type, &got);
      EXPECT(got == count, "%s: %d elements of %d", name, got, count);
      EXPECT(packed(spread) == wanted, "%s: received as the type: wrong data", name);
      spread.expect_guard(name);
      // The holes must be as they were: MPI_Unpack into a fresh buffer gives what is expected.
      std::vector<char> whole = untouched;
      int at = 0;
      MPI_Unpack(wanted.data(), bytes, &at, whole.data(), count, type, MPI_COMM_SELF);
      EXPECT(std::memcmp(whole.data(), spread.data(), room) == 0,
             "%s: a hole of the type was written", name);
    }
    session.moved(3 * static_cast<std::size_t>(bytes));
  }
  MPI_Type_free(&type);
}

void all_types(Session &session, int scale) {
  MPI_Datatype type;
  MPI_Type_contiguous(7, MPI_DOUBLE, &type);
  derived(session, "MPI_Type_contiguous", type, 1000 * scale);
  MPI_Type_vector(1000, 3, 7, MPI_INT, &type);
  derived(session, "MPI_Type_vector", type, scale);
  MPI_Type_create_hvector(500, 5, 33, MPI_BYTE, &type);
  derived(session, "MPI_Type_create_hvector", type, scale);
  std::vector<int> lengths;
  std::vector<int> places;
  std::vector<MPI_Aint> offsets;
  for (int i = 0, at = 0; i < 300; ++i) {
    lengths.push_back(i % 5);
    places.push_back(at);
    offsets.push_back(at * 4);
    at += i % 5 + i % 3;
  }
  MPI_Type_indexed(300, lengths.data(), places.data(), MPI_INT, &type);
  derived(session, "MPI_Type_indexed", type, scale);
  MPI_Type_create_hindexed(300, lengths.data(), offsets.data(), MPI_INT, &type);
  derived(session, "MPI_Type_create_hindexed", type, scale);
  MPI_Type_create_indexed_block(100, 2,
                                std::vector<int>([] {
                                  std::vector<int> v;
                                  for (int i = 0; i < 100; ++i) v.push_back(3 * i);
                                  return v;
                                }())
                                    .data(),
                                MPI_LONG, &type);
  derived(session, "MPI_Type_create_indexed_block", type, scale);
  struct Mixed {
    char letter;
    double number;
    short few[3];
    std::int64_t last;
  };
  const int counts[] = {1, 1, 3, 1};
  const MPI_Aint at[] = {offsetof(Mixed, letter), offsetof(Mixed, number), offsetof(Mixed, few),
                         offsetof(Mixed, last)};
  const MPI_Datatype of[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT64_T};
  MPI_Datatype bare;
  MPI_Type_create_struct(4, counts, at, of, &bare);
  MPI_Type_create_resized(bare, 0, sizeof(Mixed) + 8, &type);
  MPI_Type_free(&bare);
  derived(session, "MPI_Type_create_struct, resized", type, 1000 * scale);
  const int whole[] = {20, 30, 40};
  const int part[] = {10, 12, 14};
  const int from[] = {3, 5, 7};
  MPI_Type_create_subarray(3, whole, part, from, MPI_ORDER_C, MPI_FLOAT, &type);
  derived(session, "MPI_Type_create_subarray", type, scale);
}

}  // namespace

void client::run_large(Session &session) {
  const std::size_t mega = std::size_t{1} << 20;
  // The full length always; by all pairs at once only if there is time.
  if (!session.quick() || session.rank() < 2) contiguous(session, 64 * mega);
  contiguous(session, 5 * mega + 13);
  together(session, session.quick() ? 2 * mega : 16 * mega, 4);
  all_types(session, 1);
  all_types(session, session.quick() ? 5 : 50);
}
