// SPDX-License-Identifier: BSD-2-Clause
// The examples as a core sees them: each file is opened, asked for its descriptor, and used over
// the C boundary alone.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <weft/plugin.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace {

using ::testing::ElementsAre;

// ---- the core's side, as small as it can be ----

template <class T>
T *zeroed() {
  return static_cast<T *>(std::calloc(1, sizeof(T)));
}

fi_info *info_alloc() {
  fi_info *info = zeroed<fi_info>();
  info->tx_attr = zeroed<fi_tx_attr>();
  info->rx_attr = zeroed<fi_rx_attr>();
  info->ep_attr = zeroed<fi_ep_attr>();
  info->domain_attr = zeroed<fi_domain_attr>();
  info->fabric_attr = zeroed<fi_fabric_attr>();
  return info;
}

void info_free(fi_info *info) {
  while (info != nullptr) {
    fi_info *next = info->next;
    std::free(info->src_addr);
    std::free(info->dest_addr);
    std::free(info->domain_attr->name);
    std::free(info->fabric_attr->name);
    std::free(info->fabric_attr->prov_name);
    for (void *part : {static_cast<void *>(info->tx_attr), static_cast<void *>(info->rx_attr),
                       static_cast<void *>(info->ep_attr), static_cast<void *>(info->domain_attr),
                       static_cast<void *>(info->fabric_attr), static_cast<void *>(info)}) {
      std::free(part);
    }
    info = next;
  }
}

int open_objects = 0;
bool refuse_objects = false;
std::vector<std::string> log_lines;

const weft_core_services kServices = {
    .struct_size = sizeof kServices,
    .info_alloc = &info_alloc,
    .info_dup = [](const fi_info *) -> fi_info * { return nullptr; },  // no example needs it
    .info_free = &info_free,
    .log_enabled = [](const weft_instance *, int32_t, int32_t) -> int32_t { return 1; },
    .log = [](const weft_instance *, int32_t, int32_t, const char *, int32_t,
              const char *text) { log_lines.emplace_back(text); },
    .object_opened = [](fid *fid, struct fid *, weft_error *why) -> int32_t {
      const auto *header = reinterpret_cast<const weft_fid_header *>(fid) - 1;
      EXPECT_EQ(header->magic, WEFT_FID_MAGIC);
      EXPECT_NE(fid->ops, nullptr);
      if (refuse_objects) {
        std::snprintf(why->text, sizeof why->text, "no more objects");
        return why->code = -FI_ENOMEM;
      }
      ++open_objects;
      return 0;
    },
    .object_closing = [](fid *) { --open_objects; },
};

const weft_unit *load(const char *file) {
  const std::string path = weft::test::built("examples/") + file;
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  EXPECT_NE(handle, nullptr) << dlerror();
  if (handle == nullptr) return nullptr;
  const auto query = reinterpret_cast<weft_plugin_query_fn>(dlsym(handle, WEFT_QUERY_SYMBOL));
  EXPECT_NE(query, nullptr);
  const weft_offer offer = {.magic = WEFT_OFFER_MAGIC,
                            .struct_size = sizeof offer,
                            .abi_major = WEFT_ABI_MAJOR,
                            .abi_minor = WEFT_ABI_MINOR,
                            .abi_major_min = WEFT_ABI_MAJOR_MIN,
                            .core_caps = WEFT_CORE_CAP_HOOKS,
                            .core = &kServices,
                            .core_version = "test"};
  weft_error why{};
  const weft_plugin_desc *desc = query(&offer, &why);
  EXPECT_EQ(desc->magic, WEFT_DESC_MAGIC);
  EXPECT_EQ(desc->unit_count, 1u);
  return desc->units[0];
}

weft_instance instance_of(const weft_unit *unit) {
  return {.magic = WEFT_INSTANCE_MAGIC,
          .struct_size = sizeof(weft_instance),
          .core = &kServices,
          .unit = unit,
          .stack = "null"};
}

// ---- the tests ----

struct Examples : ::testing::Test {
  void SetUp() override {
    unit = load("null-provider.so");
    instance = instance_of(unit);
    ASSERT_EQ(unit->provider->create(&instance, &null, &why), 0) << why.text;
    log_lines.clear();
  }
  void TearDown() override {
    refuse_objects = false;
    null.ops->destroy(null.self);
    EXPECT_EQ(open_objects, 0);
  }
  fi_info *getinfo(const weft_provider &provider) {
    fi_info *info = nullptr;
    EXPECT_EQ(provider.ops->getinfo(provider.self, FI_VERSION(2, 6), nullptr, nullptr, 0, nullptr,
                                    &info, &why),
              0)
        << why.text;
    return info;
  }

  const weft_unit *unit = nullptr;
  weft_instance instance{};
  weft_provider null{};
  weft_error why{.struct_size = sizeof(weft_error)};
};

// An endpoint of the null provider with all that it needs.
struct NullEndpoint : Examples {
  void SetUp() override {
    Examples::SetUp();
    info = getinfo(null);
    ASSERT_EQ(null.ops->fabric(null.self, info->fabric_attr, &fabric, nullptr, &why), 0);
    ASSERT_EQ(fi_domain(fabric, info, &domain, nullptr), 0);
    fi_cq_attr cq_attr{.format = FI_CQ_FORMAT_MSG};
    ASSERT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0);
    fi_av_attr av_attr{.type = FI_AV_TABLE};
    ASSERT_EQ(fi_av_open(domain, &av_attr, &av, nullptr), 0);
    ASSERT_EQ(fi_endpoint(domain, info, &ep, nullptr), 0);
    ASSERT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    EXPECT_EQ(fi_enable(ep), -FI_ENOCQ);
    ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_ep_bind(ep, &cq->fid, FI_RECV), -FI_EBUSY);
    EXPECT_EQ(fi_send(ep, "x", 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
    ASSERT_EQ(fi_enable(ep), 0);
  }
  void TearDown() override {
    EXPECT_EQ(fi_close(&domain->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&cq->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&ep->fid), 0);
    EXPECT_EQ(fi_close(&av->fid), 0);
    EXPECT_EQ(fi_close(&cq->fid), 0);
    EXPECT_EQ(fi_close(&fabric->fid), -FI_EBUSY);
    EXPECT_EQ(fi_close(&domain->fid), 0);
    EXPECT_EQ(fi_close(&fabric->fid), 0);
    info_free(info);
    Examples::TearDown();
  }

  fi_info *info = nullptr;
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_cq *cq = nullptr;
  fid_av *av = nullptr;
  fid_ep *ep = nullptr;
};

TEST_F(NullEndpoint, TalksToItself) {
  char address[32];
  size_t length = sizeof address;
  ASSERT_EQ(fi_getname(&ep->fid, address, &length), 0);
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(av, address, 1, &self, 0, nullptr), 1);

  EXPECT_EQ(fi_send(ep, "early", 5, nullptr, self, nullptr), -FI_EAGAIN);
  char first[16] = "", second[16] = "";
  ASSERT_EQ(fi_recv(ep, first, sizeof first, nullptr, FI_ADDR_UNSPEC, first), 0);
  ASSERT_EQ(fi_recv(ep, second, sizeof second, nullptr, FI_ADDR_UNSPEC, second), 0);
  ASSERT_EQ(fi_send(ep, "hello", 5, nullptr, self, address), 0);
  ASSERT_EQ(fi_inject(ep, "you", 3, self), 0);
  EXPECT_STREQ(first, "hello");
  EXPECT_STREQ(second, "you");

  fi_cq_msg_entry done[4];
  ASSERT_EQ(fi_cq_read(cq, done, 4), 3);
  EXPECT_EQ(done[0].op_context, first);
  EXPECT_EQ(done[0].flags, FI_RECV | FI_MSG);
  EXPECT_EQ(done[0].len, 5u);
  EXPECT_EQ(done[1].op_context, address);
  EXPECT_EQ(done[1].flags, FI_SEND | FI_MSG);
  EXPECT_EQ(done[2].op_context, second);
  EXPECT_EQ(fi_cq_read(cq, done, 4), -FI_EAGAIN);

  iovec iov{first, 2};
  fi_msg msg{.msg_iov = &iov, .iov_count = 1, .context = second};
  ASSERT_EQ(fi_recvmsg(ep, &msg, 0), 0);
  ASSERT_EQ(fi_inject(ep, "long", 4, self), 0);
  ASSERT_EQ(fi_cq_read(cq, done, 4), -FI_EAVAIL);
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
  EXPECT_EQ(error.err, FI_ETRUNC);
  EXPECT_EQ(error.olen, 2u);
  EXPECT_EQ(error.op_context, second);

  EXPECT_EQ(fi_connect(ep, address, nullptr, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_ep_bind(ep, &domain->fid, 0), -FI_EINVAL);
}

TEST_F(NullEndpoint, AnObjectThatTheCoreRefusesIsGone) {
  refuse_objects = true;
  fid_ep *other = nullptr;
  EXPECT_EQ(fi_endpoint(domain, info, &other, nullptr), -FI_ENOMEM);
  fid_domain *second = nullptr;
  EXPECT_EQ(fi_domain(fabric, info, &second, nullptr), -FI_ENOMEM);
  EXPECT_THAT(log_lines, ElementsAre("no more objects", "no more objects"));
}

TEST_F(NullEndpoint, TheHookCounts) {
  const weft_unit *count = load("hook-count.so");
  weft_instance place = instance_of(count);
  place.hook_slot = 2;
  void *state = nullptr;
  ASSERT_EQ(count->hook->create(&place, &state, &why), 0);

  // What a core does to attach: tables of its own with the hook's ops over those of the endpoint.
  weft_hook_link link{.struct_size = sizeof link, .slot = 2, .hook_state = state};
  ASSERT_EQ(count->hook->attach(state, &ep->fid, &link.object_state, &why), 0);
  void *none = nullptr;
  EXPECT_EQ(count->hook->attach(state, &domain->fid, &none, &why), 1);
  link.next.fid = ep->fid.ops;
  link.next.msg = ep->msg;
  weft_hook_link *links[3] = {nullptr, nullptr, &link};
  (reinterpret_cast<weft_fid_header *>(&ep->fid) - 1)->links_core = links;
  fi_ops fid_table = *ep->fid.ops;
  fi_ops_msg msg_table = *ep->msg;
  fid_table.ops_open = count->hook->overlay->fid->ops_open;
  msg_table.send = count->hook->overlay->msg->send;
  ep->fid.ops = &fid_table;
  ep->msg = &msg_table;

  char room[8];
  EXPECT_EQ(fi_send(ep, "x", 1, nullptr, 0, nullptr), -FI_EAGAIN);  // not sent, so not counted
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(fi_recv(ep, room, sizeof room, nullptr, 0, nullptr), 0);
    ASSERT_EQ(fi_send(ep, "x", 1, nullptr, 0, nullptr), 0);
  }
  weft_counters_ops *ops = nullptr;
  ASSERT_EQ(fi_open_ops(&ep->fid, "hook-count", 0, reinterpret_cast<void **>(&ops), nullptr), 0);
  weft_counter counter{};
  EXPECT_EQ(ops->read(&ep->fid, nullptr, 0), 1u);
  EXPECT_EQ(ops->read(&ep->fid, &counter, 1), 1u);
  EXPECT_STREQ(counter.name, "sends");
  EXPECT_EQ(counter.value, 3u);
  EXPECT_EQ(fi_open_ops(&ep->fid, "else", 0, reinterpret_cast<void **>(&ops), nullptr), -FI_ENOSYS);

  ep->fid.ops = const_cast<fi_ops *>(link.next.fid);
  ep->msg = const_cast<fi_ops_msg *>(link.next.msg);
  count->hook->release(state, link.object_state);
  count->hook->destroy(state);
}

TEST_F(Examples, TheLayerChangesOneThing) {
  const weft_unit *pass = load("pass-layer.so");
  EXPECT_STREQ(pass->params[0]->name, "inject_size");
  const weft_value value{.struct_size = sizeof value,
                         .type = WEFT_TYPE_SIZE,
                         .number = 16,
                         .origin_core = "environment FI_PASS_INJECT_SIZE"};
  weft_instance place = instance_of(pass);
  place.params = &value;
  place.param_count = 1;
  weft_provider layered{};
  ASSERT_EQ(pass->layer->wrap(&place, &null, 1, &layered, &why), 0);

  fi_info *below = getinfo(null), *above = getinfo(layered);
  EXPECT_GT(below->tx_attr->inject_size, 16u);
  EXPECT_EQ(above->tx_attr->inject_size, 16u);
  EXPECT_EQ(above->caps, below->caps);
  fid_fabric *fabric = nullptr;
  ASSERT_EQ(layered.ops->fabric(layered.self, above->fabric_attr, &fabric, this, &why), 0);
  EXPECT_EQ(fabric->fid.context, this);
  EXPECT_EQ(fi_close(&fabric->fid), 0);

  std::vector<std::string> lines;
  EXPECT_EQ(layered.ops->explain(
                layered.self,
                [](void *arg, const char *text) {
                  static_cast<std::vector<std::string> *>(arg)->emplace_back(text);
                },
                &lines, &why),
            0);
  EXPECT_THAT(lines, ElementsAre("inject sizes are limited to 16 bytes (environment "
                                 "FI_PASS_INJECT_SIZE)"));
  layered.ops->destroy(layered.self);
  info_free(below);
  info_free(above);
}

}  // namespace
