// SPDX-License-Identifier: BSD-2-Clause
// A completion queue for tests, whose contexts are numbers. For the tests of weft/sdk/objects/cq.h
// only.
//
// Example (statements):
//    TestDomain domain;
//    TestCq queue(domain, cq_attr(FI_WAIT_FD));
//    queue.push(7);
//    EXPECT_EQ(queue.next(), 7);
#pragma once

#include <gtest/gtest.h>
#include <rdma/fi_eq.h>

#include <cstddef>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/objects/cq.h"

namespace weft::sdk {

// A completion queue of a domain without a provider. push() and push_error() are the provider's
// side: they take its lock. The destructor closes the queue.
class TestCq {
 public:
  TestCq(TestDomain &domain, const fi_cq_attr &attr) : domain_(domain) {
    auto opened = Cq::open(domain.context, &attr, ctx(77));
    if (opened) {
      cq = *opened;
    } else {
      ADD_FAILURE() << opened.error().text;
    }
  }
  ~TestCq() {
    if (cq != nullptr) {
      EXPECT_EQ(fi_close(cq->base()), 0);
    }
  }
  fid_cq *c() { return cq->c(); }
  void push(size_t i) {
    Guard guard(domain_.engine.lock());
    cq->push({.context = ctx(i), .flags = FI_RECV | FI_MSG, .len = i});
  }
  void push_error(size_t i, int err = FI_ETRUNC) {
    Guard guard(domain_.engine.lock());
    cq->push_error({.context = ctx(i), .err = err, .prov_errno = err});
  }
  // The number in the context of the next entry. An error entry with the number n gives -1000 - n,
  // any other error is returned as it is.
  ssize_t next() {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(c(), &entry, 1);
    if (n == 1) return ssize_t(reinterpret_cast<size_t>(entry.op_context));
    if (n != -FI_EAVAIL) return n;
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_readerr(c(), &error, 0), 1);
    last_error = error.err;
    return -1000 - ssize_t(reinterpret_cast<size_t>(error.op_context));
  }
  ssize_t sread(int timeout_ms = kPatienceMs, size_t threshold = 0) {
    fi_cq_tagged_entry entry{};
    return fi_cq_sread(c(), &entry, 1, ctx(threshold), timeout_ms);
  }

  Cq *cq = nullptr;
  int last_error = 0;

 private:
  TestDomain &domain_;
};

inline fi_cq_attr cq_attr(enum fi_wait_obj wait = FI_WAIT_NONE, size_t size = 0) {
  fi_cq_attr attr{};
  attr.size = size;
  attr.format = FI_CQ_FORMAT_TAGGED;
  attr.wait_obj = wait;
  return attr;
}

inline fi_cq_attr cq_threshold_attr() {
  fi_cq_attr attr = cq_attr(FI_WAIT_UNSPEC);
  attr.wait_cond = FI_CQ_COND_THRESHOLD;
  return attr;
}

}  // namespace weft::sdk
