// SPDX-License-Identifier: BSD-2-Clause
// What a process opens: PIDs, queues, and what is refused.
#include "plugins/cxi/soft/lni.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <string>

#include "plugins/cxi/nic/return_codes.h"
#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

TEST(Lni, APidHasOneOwnerInItsVni) {
  Host host;
  auto lni = must(host.open(1)), other_nic = must(host.open(2));
  auto first = must(lni->endpoint(kVni, 7));
  EXPECT_EQ(first->pid(), 7);
  EXPECT_EQ(lni->endpoint(kVni, 7).error().code, FI_EADDRINUSE);
  EXPECT_EQ(must(lni->endpoint(kVni + 1, 7))->vni(), kVni + 1);
  EXPECT_EQ(must(other_nic->endpoint(kVni, 7))->pid(), 7);
  first.reset();
  EXPECT_EQ(must(lni->endpoint(kVni, 7))->pid(), 7);
}

TEST(Lni, APidIsBelow511) {
  Host host;
  auto lni = must(host.open(1));
  EXPECT_EQ(must(lni->endpoint(kVni, kMaxPid))->pid(), 510);
  EXPECT_EQ(lni->endpoint(kVni, 512).error().code, FI_EINVAL);
  auto any = must(lni->endpoint(kVni, kAnyPid)), more = must(lni->endpoint(kVni, kAnyPid));
  EXPECT_NE(any->pid(), more->pid());
}

TEST(Lni, AnEndpointThatEndsTakesItsPortalsAlong) {
  Host host;
  Process a(host, 1), b(host, 2);
  b.open_portal(0, {});
  const Address address = b.at(0);
  const std::string text = "x";
  EXPECT_EQ(a.result_of(a.put_to(address, text)), Rc::kEntryNotFound);
  b.endpoint.reset();
  EXPECT_EQ(a.result_of(a.put_to(address, text)), Rc::kUndeliverable) << "the host knows more";
  b.portals.clear();
}

TEST(Lni, WhatCannotBeMadeIsRefusedInWords) {
  Host host;
  auto lni = must(host.open(1));
  EXPECT_EQ(lni->event_queue({.places = size_t{1} << 40}).error().code, FI_EINVAL);
  const auto reserved = lni->event_queue({.places = 4, .reserved = 4});
  EXPECT_EQ(reserved.error().code, FI_ENOSPC);
  EXPECT_NE(reserved.error().text.find("4 places"), std::string::npos);
  auto events = must(lni->event_queue({.places = 4}));
}

TEST(Words, WildcardsOfInitiators) {
  const uint32_t from = match_id(5, 1234);
  EXPECT_TRUE(accepts(kMatchAny, from));
  EXPECT_TRUE(accepts(from, from));
  EXPECT_TRUE(accepts(match_id(kMatchAnyPid, 1234), from));
  EXPECT_TRUE(accepts(match_id(5, kMatchAnyEp), from));
  EXPECT_FALSE(accepts(match_id(6, kMatchAnyEp), from));
  EXPECT_FALSE(accepts(match_id(kMatchAnyPid, 1235), from));
  EXPECT_FALSE(accepts(match_id(6, 1234), from));
}

// fi_cxi.7, "CQ Error Event Errno".
TEST(ReturnCodes, EachHasATextAndAnErrno) {
  for (const int rc :
       {0, 1, 2, 3, 4, 5, 6, 8, 16, 18, 25, 26, 27, 29, 33, 34, 36, 40, 41, 48, 52, 54, 58})
    EXPECT_NE(text_of(Rc(rc)), nullptr) << rc;
  EXPECT_EQ(text_of(Rc{63}), nullptr);
  EXPECT_EQ(errno_of(Rc::kOk), 0);
  EXPECT_EQ(errno_of(Rc::kUndeliverable), FI_EHOSTUNREACH);
  EXPECT_EQ(errno_of(Rc::kVniNotFound), FI_ENOTCONN);
  EXPECT_EQ(errno_of(Rc::kPtlteNotFound), FI_ENOTCONN);
  EXPECT_EQ(errno_of(Rc::kCanceled), FI_ECANCELED);
  for (const Rc rc : {Rc::kEntryNotFound, Rc::kOpViolation, Rc::kAddrOutOfRange, Rc{63}})
    EXPECT_EQ(errno_of(rc), FI_EIO) << int(rc);
}

TEST(ReturnCodes, WhoDoesNotTakeAMessageIsThereAllTheSame) {
  for (const Rc rc : {Rc::kUndeliverable, Rc::kVniNotFound, Rc::kPtlteNotFound})
    EXPECT_TRUE(is_gone(rc)) << int(rc);
  for (const Rc rc : {Rc::kOk, Rc::kEntryNotFound, Rc::kPtDisabled, Rc::kNoSpace, Rc::kCanceled})
    EXPECT_FALSE(is_gone(rc)) << int(rc);
}

}  // namespace
}  // namespace weft::cxi
