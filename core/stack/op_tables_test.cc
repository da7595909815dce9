// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/op_tables.h"

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstring>
#include <memory>

namespace weft {
namespace {

ssize_t answer_7(struct fid_ep *, const void *, size_t, void *, fi_addr_t, void *) {
  return 7;
}
ssize_t answer_8(struct fid_ep *, const void *, size_t, void *, fi_addr_t, void *) {
  return 8;
}

TEST(OpTables, EveryMissingOpAnswersNotSupported) {
  for (size_t i = 0; i < kTableCount; ++i) {
    const auto table = static_cast<Table>(i);
    const TableCopy full = complete(table, nullptr);
    ASSERT_NE(full, nullptr);
    EXPECT_TRUE(is_complete(table, full.get())) << i;
  }
  const TableCopy cm = complete(Table::kCm, nullptr);
  auto *cm_ops = static_cast<struct fi_ops_cm *>(cm.get());
  EXPECT_EQ(cm_ops->size, sizeof(struct fi_ops_cm));
  EXPECT_EQ(cm_ops->connect(nullptr, nullptr, nullptr, 0), -FI_ENOSYS);
  const TableCopy cntr = complete(Table::kCntr, nullptr);
  EXPECT_EQ(static_cast<struct fi_ops_cntr *>(cntr.get())->read(nullptr), 0u);
  const TableCopy cq = complete(Table::kCq, nullptr);
  EXPECT_STREQ(static_cast<struct fi_ops_cq *>(cq.get())->strerror(nullptr, 0, nullptr, nullptr, 0),
               "operation not supported");
}

TEST(OpTables, CompletesAShortTableOfAnOlderPlugin) {
  struct {
    size_t size;
    decltype(fi_ops_msg::recv) recv;
    decltype(fi_ops_msg::recvv) recvv;
    decltype(fi_ops_msg::recvmsg) recvmsg;
    decltype(fi_ops_msg::send) send;
  } old{sizeof old, nullptr, nullptr, nullptr, answer_7};
  EXPECT_FALSE(is_complete(Table::kMsg, &old));
  const TableCopy full = complete(Table::kMsg, &old);
  auto *ops = static_cast<struct fi_ops_msg *>(full.get());
  EXPECT_EQ(ops->size, sizeof(struct fi_ops_msg));
  EXPECT_EQ(ops->send(nullptr, nullptr, 0, nullptr, 0, nullptr), 7);
  EXPECT_EQ(ops->injectdata(nullptr, nullptr, 0, 0, 0), -FI_ENOSYS);
  EXPECT_EQ(ops->recv(nullptr, nullptr, 0, nullptr, 0, nullptr), -FI_ENOSYS);
}

TEST(OpTables, KeepsTheOpsOfANewerPlugin) {
  struct {
    struct fi_ops_wait known;
    int (*newer)(int);
  } longer{};
  longer.known.size = sizeof longer;
  longer.newer = [](int value) { return value + 1; };
  const TableCopy full = complete(Table::kWait, &longer);
  auto *copy = static_cast<decltype(longer) *>(full.get());
  EXPECT_EQ(copy->known.size, sizeof longer);
  EXPECT_EQ(copy->newer(1), 2);
  EXPECT_EQ(copy->known.wait(nullptr, 0), -FI_ENOSYS);
}

TEST(OpTables, ReadsNothingOfATableWithABadSize) {
  auto tiny = std::make_unique<size_t>(0);  // reading past it would be caught by ASan
  EXPECT_FALSE(is_complete(Table::kMsg, tiny.get()));
  for (const size_t lie : {size_t{0}, size_t{7}, size_t{1} << 40}) {
    *tiny = lie;
    const TableCopy full = complete(Table::kMsg, tiny.get());
    EXPECT_TRUE(is_complete(Table::kMsg, full.get())) << lie;
  }
}

TEST(OpTables, OverlayTakesOnlyWhatTheHookNames) {
  struct fi_ops_msg provider {};
  provider.size = sizeof provider;
  provider.send = answer_7;
  struct fi_ops_msg hook {};
  hook.size = sizeof hook;
  const TableCopy full = complete(Table::kMsg, &provider);
  overlay(full.get(), &hook);
  auto *ops = static_cast<struct fi_ops_msg *>(full.get());
  EXPECT_EQ(ops->send, &answer_7);
  hook.send = answer_8;
  overlay(full.get(), &hook);
  EXPECT_EQ(ops->send, &answer_8);
  // A hook built against an older header has a shorter table, and changes nothing behind it.
  hook.send = answer_7;
  hook.size = offsetof(struct fi_ops_msg, send);
  overlay(full.get(), &hook);
  EXPECT_EQ(ops->send, &answer_8);
}

TEST(OpTables, PlacesCoverThePublicStructs) {
  EXPECT_EQ(places_of(FI_CLASS_EP).size(), 8u);
  EXPECT_EQ(places_of(FI_CLASS_DOMAIN).size(), 3u);
  EXPECT_EQ(places_of(FI_CLASS_MR).size(), 1u);
  EXPECT_EQ(places_of(12345).size(), 1u);
  struct fi_ops_msg msg {};
  struct fid_ep ep {};
  ep.msg = &msg;
  const TablePlace place = places_of(FI_CLASS_EP)[3];
  EXPECT_EQ(place.table, Table::kMsg);
  EXPECT_EQ(load_table(&ep.fid, place), &msg);
  store_table(&ep.fid, place, nullptr);
  EXPECT_EQ(ep.msg, nullptr);
}

TEST(OpTables, MembersBehindTheWritersStructAreNull) {
  weft_op_tables tables{};
  struct fi_ops_msg msg {};
  tables.msg = &msg;
  tables.struct_size = sizeof tables;
  EXPECT_EQ(table_in(tables, Table::kMsg), &msg);
  tables.struct_size = offsetof(weft_op_tables, msg);
  EXPECT_EQ(table_in(tables, Table::kMsg), nullptr);
}

}  // namespace
}  // namespace weft
