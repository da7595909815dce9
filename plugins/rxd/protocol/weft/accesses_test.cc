// SPDX-License-Identifier: BSD-2-Clause
// Accesses that are refused, at an endpoint that has no memory for its peers. Those that are
// executed are in network_test.cc and dialects_test.cc.
#include "plugins/rxd/protocol/weft/accesses.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "plugins/rxd/protocol/weft/test_link.h"

namespace weft::rxd {
namespace {

struct Memory : Linked {
  ~Memory() {
    accesses.clear();
    answers.clear();
    EXPECT_EQ(pools.remotes.in_use() + pools.answers.in_use() + pools.results.in_use(), 0U);
  }
  // A frame as the peer writes it.
  bool take(Frames &frames) {
    wire::FrameReader reader(frames.writer.written(), true);
    EXPECT_TRUE(reader.next());
    switch (reader.kind()) {
      case wire::FrameKind::kRead:
        return accesses.read(reader.id(), reader.vectors());
      case wire::FrameKind::kWrite:
        return accesses.write(reader.write(), reader.vectors(), reader.payload());
      default:
        return accesses.atomic(reader.atomic(), reader.vectors(), reader.payload());
    }
  }
  // The status of the only answer.
  int status() {
    Frames frames;
    answers.add(frames.writer);
    wire::FrameReader reader(frames.writer.written(), false);
    if (!reader.next()) return -1;
    return reader.kind() == wire::FrameKind::kDone ? reader.done().status : reader.result().status;
  }
  Answers answers{link};
  Accesses accesses{link, answers};
};

TEST(Accesses, AreRefusedWithTheReason) {
  const RmaVector some[] = {{0, 8, 1}}, one[] = {{0, 1, 1}}, none[] = {{0, 0, 1}},
                  many[] = {{0, UINT64_MAX, 1}, {0, 8, 1}};
  const uint8_t bytes[16] = {};
  using Write = void (*)(wire::Writer &, std::span<const RmaVector>, std::span<const uint8_t>);
  const Write read = [](auto &w, auto v, auto) { w.read(0, v); };
  const Write write = [](auto &w, auto v, auto b) {
    w.write({.id = 0, .total = 8}, v, b.size());
    w.payload(b);
  };
  const Write atomic = [](auto &w, auto v, auto b) {
    w.atomic({.kind = 0, .datatype = FI_UINT64, .operation = FI_SUM, .id = 0}, v, b.size());
    w.payload(b);
  };
  const Write fetch = [](auto &w, auto v, auto b) {
    w.atomic({.kind = 1, .datatype = FI_UINT64, .operation = FI_SUM, .id = 0}, v, b.size());
    w.payload(b);
  };
  const Write unknown = [](auto &w, auto v, auto b) {
    w.atomic({.kind = 0, .datatype = 200, .operation = FI_SUM, .id = 0}, v, b.size());
    w.payload(b);
  };
  const struct {
    Write write;
    std::span<const RmaVector> vectors;
    size_t bytes;
    int status;
  } rows[] = {
      {read, some, 0, FI_EACCES},        {read, none, 0, 0},
      {read, many, 0, FI_EACCES},        {write, some, 8, FI_EACCES},
      {write, some, 0, FI_EACCES},       {write, none, 8, FI_EINVAL},
      {write, many, 8, FI_EINVAL},       {atomic, some, 8, FI_EINVAL},
      {atomic, many, 8, FI_EINVAL},      {fetch, many, 8, FI_EINVAL},
      {unknown, some, 8, FI_EOPNOTSUPP}, {atomic, one, 8, FI_EACCES},
      {fetch, one, 8, FI_EACCES},
  };
  for (const auto &row : rows) {
    Memory memory;
    Frames frames;
    row.write(frames.writer, row.vectors, std::span<const uint8_t>(bytes).first(row.bytes));
    EXPECT_TRUE(memory.take(frames)) << &row - rows;
    EXPECT_EQ(memory.status(), row.status) << &row - rows;
    EXPECT_FALSE(memory.accesses.waits() || memory.is_over());
  }
}

}  // namespace
}  // namespace weft::rxd
