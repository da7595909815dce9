// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/objects/domain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/objects/eq.h"
#include "weft/sdk/objects/ops.h"

namespace weft::sdk::domain_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As a provider writes it: the ops come from SoftwareDomain, but for closing and binding.
class Domain final : public Object<Domain, fid_domain>, public SoftwareDomain {
 public:
  explicit Domain(const weft_instance *instance, const DomainSettings &settings)
      : Object(instance, FI_CLASS_DOMAIN, nullptr), SoftwareDomain(instance, base(), settings) {
    fill_tables(*this);
  }
  int close() {
    if (shared().children.load() != 0) return -FI_EBUSY;
    unbind();
    return 0;
  }
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }
};

struct Stage {
  explicit Stage(const DomainSettings &settings = {.api_version = FI_VERSION(2, 6)})
      : domain(instance.c(), settings) {
    fabric.fid.fclass = FI_CLASS_FABRIC;
    fabric.api_version = settings.api_version;
  }
  ~Stage() { EXPECT_EQ(fi_close(domain.base()), 0); }
  Eq *open_eq() {
    auto opened = Eq::open(instance.c(), &fabric.fid, children, nullptr, nullptr);
    return opened ? *opened : nullptr;
  }
  fid_domain *c() { return domain.c(); }

  TestInstance instance;
  fid_fabric fabric{};
  std::atomic<size_t> children{0};
  Domain domain;
};

TEST(Domain, OpensItsObjects) {
  Stage stage;
  int mark = 0;
  fid_cq *cq = nullptr;
  fid_cntr *cntr = nullptr;
  fid_poll *poll = nullptr;
  EXPECT_EQ(fi_cq_open(stage.c(), nullptr, &cq, &mark), 0);
  EXPECT_EQ(fi_cntr_open(stage.c(), nullptr, &cntr, &mark), 0);
  EXPECT_EQ(fi_poll_open(stage.c(), nullptr, &poll), 0);
  EXPECT_EQ(cq->fid.context, &mark);
  EXPECT_EQ(cntr->fid.context, &mark);
  EXPECT_EQ(fi_close(stage.domain.base()), -FI_EBUSY);
  for (fid *object : {&cq->fid, &cntr->fid, &poll->fid}) {
    EXPECT_EQ(header_of(object)->instance, stage.instance.c());
    EXPECT_EQ(fi_close(object), 0);
  }
}

TEST(Domain, AFailureIsLoggedOnceAndChangesNothing) {
  Stage stage;
  fi_cq_attr attr{};
  attr.flags = FI_PEEK;
  fid_cq *cq = nullptr;
  EXPECT_EQ(fi_cq_open(stage.c(), &attr, &cq, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(cq, nullptr);
  EXPECT_THAT(stage.instance.log(), ElementsAre(HasSubstr("fi_cq_attr.flags")));
  EXPECT_EQ(fi_cq_open(stage.c(), nullptr, nullptr, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_cntr_open(stage.c(), nullptr, nullptr, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_poll_open(stage.c(), nullptr, nullptr), -FI_EINVAL);
  char memory[8];
  EXPECT_EQ(fi_mr_reg(stage.c(), memory, 8, 0, 0, 0, 0, nullptr, nullptr), -FI_EINVAL);
  fid_mr *mr = nullptr;
  EXPECT_EQ(fi_mr_regattr(stage.c(), nullptr, 0, &mr), -FI_EINVAL);
  EXPECT_EQ(fi_mr_reg(stage.c(), memory, 8, 0, 1, 0, 0, &mr, nullptr), -FI_EINVAL);
  EXPECT_EQ(mr, nullptr);
  fid_ep *ep = nullptr;
  EXPECT_EQ(fi_endpoint(stage.c(), nullptr, &ep, nullptr), -FI_ENOSYS) << "the provider's own";
}

TEST(Domain, SettingsReachItsObjects) {
  Stage stage({.api_version = FI_VERSION(1, 4),
               .resource_management = false,
               .default_cq_size = 2,
               .mr = {.virtual_addresses = true, .provider_keys = true, .iov_limit = 2}});
  EXPECT_EQ(stage.domain.shared().api_version, FI_VERSION(1, 4));
  fid_cq *cq = nullptr;
  ASSERT_EQ(fi_cq_open(stage.c(), nullptr, &cq, nullptr), 0);
  {
    Guard guard(stage.domain.engine().lock());
    for (int i = 0; i < 3; ++i) Cq::from(cq)->push({});
  }
  fi_cq_entry entries[4];
  EXPECT_EQ(fi_cq_read(cq, entries, 4), 2);
  EXPECT_EQ(fi_cq_read(cq, entries, 4), -FI_EAVAIL) << "overrun";
  EXPECT_EQ(fi_close(&cq->fid), 0);
  char memory[8];
  const iovec iov[3] = {{memory, 8}, {memory, 8}, {memory, 8}};
  fid_mr *mr = nullptr;
  EXPECT_EQ(fi_mr_regv(stage.c(), iov, 3, 0, 0, 0, 0, &mr, nullptr), -FI_EINVAL);
  ASSERT_EQ(fi_mr_regv(stage.c(), iov, 2, 0, 0, 0, 0, &mr, nullptr), 0);
  EXPECT_NE(fi_mr_key(mr), 0u);
  EXPECT_EQ(fi_close(&mr->fid), 0);
}

TEST(Domain, RegistersInEveryForm) {
  Stage stage;
  int mark = 0;
  char memory[64];
  fid_mr *a = nullptr, *b = nullptr, *c = nullptr;
  ASSERT_EQ(fi_mr_reg(stage.c(), memory, 64, FI_REMOTE_READ, 0, 1, 0, &a, &mark), 0);
  const iovec iov[2] = {{memory, 32}, {memory + 48, 16}};
  ASSERT_EQ(fi_mr_regv(stage.c(), iov, 2, FI_REMOTE_WRITE, 0, 2, 0, &b, &mark), 0);
  fi_mr_attr attr{};
  attr.mr_iov = iov;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_WRITE;
  attr.requested_key = 3;
  attr.context = &mark;
  ASSERT_EQ(fi_mr_regattr(stage.c(), &attr, 0, &c), 0);
  EXPECT_EQ(stage.domain.regions().size(), 3u);
  uint64_t key = 0;
  for (fid_mr *mr : {a, b, c}) {
    EXPECT_EQ(fi_mr_key(mr), ++key);
    EXPECT_EQ(mr->fid.context, &mark);
  }
  {
    Guard guard(stage.domain.engine().lock());
    iovec out[4];
    EXPECT_EQ(stage.domain.regions().resolve(2, 0, 48, FI_REMOTE_WRITE, out, 4).count, 2u);
  }
  EXPECT_EQ(fi_mr_reg(stage.c(), memory, 64, FI_REMOTE_READ, 0, 2, 0, &a, &mark), -FI_ENOKEY);
  for (fid_mr *mr : {a, b, c}) EXPECT_EQ(fi_close(&mr->fid), 0);
}

TEST(Domain, MapsRawKeys) {
  Stage stage;
  char memory[64];
  fid_mr *mr = nullptr;
  ASSERT_EQ(fi_mr_reg(stage.c(), memory, 64, FI_REMOTE_READ, 0, 77, 0, &mr, nullptr), 0);
  uint64_t base = 1, key = 0;
  uint8_t raw_key[8];
  size_t size = sizeof raw_key;
  ASSERT_EQ(fi_mr_raw_attr(mr, &base, raw_key, &size, 0), 0);
  EXPECT_EQ(fi_mr_map_raw(stage.c(), base, raw_key, size, &key, 0), 0);
  EXPECT_EQ(key, 77u);
  EXPECT_EQ(fi_mr_unmap_key(stage.c(), key), 0);
  EXPECT_EQ(fi_control(stage.domain.base(), FI_GETWAIT, &key), -FI_ENOSYS);
  EXPECT_EQ(fi_close(&mr->fid), 0);
}

TEST(DomainBind, RegistrationCompletesInTheEventQueue) {
  Stage stage;
  Eq *eq = stage.open_eq(), *second = stage.open_eq();
  EXPECT_EQ(fi_domain_bind(stage.c(), eq->base(), FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(fi_domain_bind(stage.c(), stage.domain.base(), 0), -FI_EINVAL);
  EXPECT_EQ(fi_domain_bind(stage.c(), second->base(), 0), 0) << "without a flag it gets no events";
  EXPECT_EQ(fi_close(second->base()), 0);
  ASSERT_EQ(fi_domain_bind(stage.c(), eq->base(), FI_REG_MR), 0);
  EXPECT_EQ(fi_domain_bind(stage.c(), eq->base(), FI_REG_MR), -FI_EBUSY);
  EXPECT_EQ(fi_close(eq->base()), -FI_EBUSY);
  char memory[64];
  int mark = 0;
  fid_mr *mr = nullptr, *none = nullptr;
  ASSERT_EQ(fi_mr_reg(stage.c(), memory, 64, FI_REMOTE_READ, 0, 9, 0, &mr, &mark), 0);
  EXPECT_EQ(fi_mr_reg(stage.c(), memory, 64, FI_REMOTE_READ, 0, 9, 0, &none, &mark), -FI_ENOKEY);
  uint32_t event = 0;
  fi_eq_entry entry{};
  ASSERT_EQ(fi_eq_read(eq->c(), &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, uint32_t(FI_MR_COMPLETE));
  EXPECT_EQ(entry.fid, &mr->fid);
  EXPECT_EQ(entry.context, &mark);
  EXPECT_EQ(entry.data, 9u);
  EXPECT_EQ(fi_eq_read(eq->c(), &event, &entry, sizeof entry, 0), -FI_EAGAIN)
      << "a call that fails has no event";
  EXPECT_EQ(fi_close(&mr->fid), 0);
  EXPECT_EQ(fi_close(stage.domain.base()), 0);  // lets the event queue go
  EXPECT_EQ(fi_close(eq->base()), 0);
}

TEST(Domain, AConditionNeedsNoThreadOfTheEngine) {
  Stage stage;
  fi_cq_attr attr{};
  attr.wait_obj = FI_WAIT_MUTEX_COND;
  fid_cq *cq = nullptr;
  ASSERT_EQ(fi_cq_open(stage.c(), &attr, &cq, nullptr), 0);
  EXPECT_FALSE(stage.domain.engine().threaded());
  fi_mutex_cond wait{};
  EXPECT_EQ(fi_control(&cq->fid, FI_GETWAIT, &wait), 0);
  Event event;
  event.then = [&] { Cq::from(cq)->push({.len = 5}); };
  {
    Guard guard(stage.domain.engine().lock());
    stage.domain.engine().add(event, event.fd(), EPOLLIN, 0);
  }
  timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += kPatience.count();
  pthread_mutex_lock(wait.mutex);
  EXPECT_EQ(Cq::from(cq)->trywait(), 0);
  event.signal();
  EXPECT_EQ(pthread_cond_timedwait(wait.cond, wait.mutex, &deadline), 0);
  pthread_mutex_unlock(wait.mutex);
  fi_cq_entry entry;
  EXPECT_EQ(fi_cq_read(cq, &entry, 1), 1);
  {
    Guard guard(stage.domain.engine().lock());
    stage.domain.engine().remove(event);
  }
  EXPECT_EQ(fi_close(&cq->fid), 0);
}

}  // namespace
}  // namespace weft::sdk::domain_test
