// SPDX-License-Identifier: BSD-2-Clause
// The examples in a program: libfabric.so.1 finds them by FI_PROVIDER_PATH and stacks them as
// FI_PROVIDER and FI_HOOK say. ctest runs each test in a process of its own with the environment
// that it needs (examples/CMakeLists.txt).
#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <weft/plugin.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

struct InfoDeleter {
  void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

Info first_rdm() {
  const Info hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  fi_info *info = nullptr;
  EXPECT_EQ(fi_getinfo(FI_VERSION(2, 6), nullptr, nullptr, 0, hints.get(), &info), 0);
  return Info(info);
}

// FI_PROVIDER=null;pass FI_PASS_INJECT_SIZE=7
TEST(ExampleStack, Layer) {
  const Info info = first_rdm();
  ASSERT_NE(info, nullptr);
  EXPECT_STREQ(info->fabric_attr->prov_name, "null;pass");
  EXPECT_EQ(info->tx_attr->inject_size, 7u);
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(fi_fabric(info->fabric_attr, &fabric, nullptr), 0);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
}

// FI_PROVIDER=null FI_HOOK=count
TEST(ExampleStack, Hook) {
  const Info info = first_rdm();
  ASSERT_NE(info, nullptr);
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_cq *cq = nullptr;
  fid_ep *ep = nullptr;
  fi_cq_attr attr{.format = FI_CQ_FORMAT_CONTEXT};
  ASSERT_EQ(fi_fabric(info->fabric_attr, &fabric, nullptr), 0);
  ASSERT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
  ASSERT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), 0);
  ASSERT_EQ(fi_endpoint(domain, info.get(), &ep, nullptr), 0);
  ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
  ASSERT_EQ(fi_enable(ep), 0);

  char room[8];
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(fi_recv(ep, room, sizeof room, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    ASSERT_EQ(fi_send(ep, "x", 1, nullptr, 0, nullptr), 0);
  }
  weft_counters_ops *ops = nullptr;
  ASSERT_EQ(fi_open_ops(&ep->fid, "hook-count", 0, reinterpret_cast<void **>(&ops), nullptr), 0);
  weft_counter counter{};
  EXPECT_EQ(ops->read(&ep->fid, &counter, 1), 1u);
  EXPECT_EQ(counter.value, 5u);

  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&cq->fid), 0);
  EXPECT_EQ(fi_close(&domain->fid), 0);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
}

// FI_PROVIDER=null WEFT_TOOL=bin/weft: weft knows nothing of this provider, and another process
// sees what it counts.
TEST(ExampleStack, Counters) {
  const Info info = first_rdm();
  ASSERT_NE(info, nullptr);
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_cq *cq = nullptr;
  fid_ep *ep = nullptr;
  fi_cq_attr attr{.format = FI_CQ_FORMAT_CONTEXT};
  ASSERT_EQ(fi_fabric(info->fabric_attr, &fabric, nullptr), 0);
  ASSERT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
  ASSERT_EQ(fi_cq_open(domain, &attr, &cq, nullptr), 0);
  ASSERT_EQ(fi_endpoint(domain, info.get(), &ep, nullptr), 0);
  ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
  ASSERT_EQ(fi_enable(ep), 0);
  char room[2];
  ASSERT_EQ(fi_send(ep, "long", 4, nullptr, 0, nullptr), -FI_EAGAIN);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(fi_recv(ep, room, sizeof room, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    ASSERT_EQ(fi_send(ep, "long", 4, nullptr, 0, nullptr), 0);
  }

  ASSERT_NE(std::getenv("WEFT_TOOL"), nullptr);
  const std::string command =
      std::getenv("WEFT_TOOL") + std::string(" stats --json ") + std::to_string(getpid());
  FILE *tool = popen(command.c_str(), "r");
  ASSERT_NE(tool, nullptr);
  std::string text;
  char piece[1000];
  for (size_t n; (n = std::fread(piece, 1, sizeof piece, tool)) > 0;) text.append(piece, n);
  EXPECT_EQ(pclose(tool), 0);
  for (const char *told :
       {"\"element\": \"null\"", "\"messages_truncated\"", "\"value\": 3",
        "messages that were longer than their receive", "\"sends_refused\"", "\"value\": 1"})
    EXPECT_NE(text.find(told), std::string::npos) << told << " is not in:\n" << text;

  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_close(&cq->fid), 0);
  EXPECT_EQ(fi_close(&domain->fid), 0);
  EXPECT_EQ(fi_close(&fabric->fid), 0);
}

}  // namespace
