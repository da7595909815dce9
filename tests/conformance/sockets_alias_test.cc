// SPDX-License-Identifier: BSD-2-Clause
// The name `sockets`, which stands for tcp, and for udp where datagrams are asked for. Programs
// open what they found by any of its kinds of endpoints, several of them in one process.
#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>

#include <cstring>
#include <string>

#include "tests/conformance/common.h"

namespace weft::conformance {
namespace {

Info hints_for(fi_ep_type type, uint64_t caps) {
  Info hints(fi_allocinfo());
  hints->caps = caps;
  hints->ep_attr->type = type;
  hints->fabric_attr->prov_name = strdup("sockets");
  return hints;
}
Info find(fi_ep_type type, uint64_t caps = FI_MSG) {
  Info found;
  must(try_info(found, "127.0.0.1", nullptr, FI_SOURCE, hints_for(type, caps).get()));
  return found;
}

// One that sends to itself, opened from an fi_info.
struct Self : Driver {
  explicit Self(const Info &found) : info(fi_dupinfo(found.get())) {
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
    fi_av_attr av_attr{};
    must(fi_av_open(domain, &av_attr, av.out(), nullptr));
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_DATA;
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    must(fi_endpoint(domain, info.get(), ep.out(), nullptr));
    must(fi_ep_bind(ep, av.fid(), 0));
    must(fi_ep_bind(ep, cq.fid(), FI_TRANSMIT | FI_RECV));
    must(fi_enable(ep));
    const std::string name =
        address_of([&](void *to, size_t *size) { return fi_getname(ep.fid(), to, size); });
    EXPECT_EQ(fi_av_insert(av, name.data(), 1, &self, 0, nullptr), 1);
  }
  void progress() override {}
  void exchange() {
    const std::vector<uint8_t> out = pattern(100, 1);
    std::vector<uint8_t> in(100);
    must(fi_recv(ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    post([&] { return fi_send(ep, out.data(), out.size(), nullptr, self, nullptr); });
    const Completion first = wait(cq), second = wait(cq);
    EXPECT_EQ((first.flags | second.flags) & (FI_SEND | FI_RECV), FI_SEND | FI_RECV);
    EXPECT_EQ(in, out);
  }

  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> cq;
  Handle<fid_ep> ep;
  fi_addr_t self = FI_ADDR_NOTAVAIL;
};

TEST(SocketsAlias, HasEachKindOfEndpoint) {
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_RDM, FI_EP_DGRAM}) {
    const Info found = find(type);
    ASSERT_TRUE(found);
    for (const fi_info *one = found.get(); one != nullptr; one = one->next) {
      EXPECT_STREQ(one->fabric_attr->prov_name, "sockets");
      EXPECT_EQ(one->ep_attr->type, type);
    }
  }
  Info all;
  must(try_info(all, "127.0.0.1", nullptr, FI_SOURCE, hints_for(FI_EP_UNSPEC, FI_MSG).get()));
  EXPECT_EQ(all->ep_attr->type, FI_EP_RDM) << "the best first";
}

TEST(SocketsAlias, AllKindsAreOpenAtOnce) {
  Self reliable(find(FI_EP_RDM)), datagrams(find(FI_EP_DGRAM)), more(find(FI_EP_RDM)),
      atomics(find(FI_EP_RDM, FI_MSG | FI_ATOMIC));
  for (int i = 0; i < 3; ++i) {
    datagrams.exchange();
    reliable.exchange();
    more.exchange();
    atomics.exchange();
  }
}

// What a capability promises is there: the name is not offered for the others.
TEST(SocketsAlias, WhatIsOfferedIsThere) {
  const Info atomics = find(FI_EP_RDM, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER);
  EXPECT_EQ(atomics->caps & (FI_ATOMIC | FI_TRIGGER), FI_ATOMIC | FI_TRIGGER);
  Self self(atomics);
  size_t count = 0;
  EXPECT_EQ(fi_atomicvalid(self.ep, FI_UINT64, FI_SUM, &count), 0);
  EXPECT_GE(count, 1u);
  const struct {
    fi_ep_type type;
    uint64_t caps;
  } lacking[] = {{FI_EP_MSG, FI_ATOMIC},
                 {FI_EP_MSG, FI_TAGGED},
                 {FI_EP_MSG, FI_TRIGGER},
                 {FI_EP_DGRAM, FI_TAGGED},
                 {FI_EP_DGRAM, FI_ATOMIC}};
  for (const auto &[type, caps] : lacking) {
    Info found;
    EXPECT_EQ(
        try_info(found, "127.0.0.1", nullptr, FI_SOURCE, hints_for(type, FI_MSG | caps).get()),
        -FI_ENODATA)
        << type << " " << caps_text(caps);
  }
}

// Stock's provider of this name had a thread for its progress.
TEST(SocketsAlias, ProgressIsAutomaticByDefault) {
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_RDM, FI_EP_DGRAM}) {
    EXPECT_EQ(find(type)->domain_attr->data_progress, FI_PROGRESS_AUTO);
    EXPECT_EQ(find(type)->domain_attr->control_progress, FI_PROGRESS_AUTO);
    const Info hints = hints_for(type, FI_MSG);
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    Info manual;
    must(try_info(manual, "127.0.0.1", nullptr, FI_SOURCE, hints.get()));
    EXPECT_EQ(manual->domain_attr->data_progress, FI_PROGRESS_MANUAL);
  }
}

// The protocol by which some programs ask for the provider.
TEST(SocketsAlias, DatagramsHaveTheProtocolToo) {
  const Info hints = hints_for(FI_EP_DGRAM, FI_MSG);
  hints->ep_attr->protocol = FI_PROTO_SOCK_TCP;
  Info found;
  must(try_info(found, "127.0.0.1", nullptr, FI_SOURCE, hints.get()));
  EXPECT_EQ(found->ep_attr->protocol, uint32_t{FI_PROTO_SOCK_TCP});
  Self(found).exchange();
}

// A program may build its fi_info from what it keeps of fi_getinfo's.
TEST(SocketsAlias, CopiesByHandOpenTheSame) {
  const Info found = find(FI_EP_DGRAM);
  const Info copy(fi_allocinfo());
  fi_fabric_attr fabric = *copy->fabric_attr;
  *copy->ep_attr = *found->ep_attr;
  *copy->tx_attr = *found->tx_attr;
  *copy->rx_attr = *found->rx_attr;
  copy->caps = found->caps;
  copy->addr_format = found->addr_format;
  copy->domain_attr->name = strdup(found->domain_attr->name);
  fabric.prov_name = strdup(found->fabric_attr->prov_name);
  fabric.name = strdup(found->fabric_attr->name);
  fabric.prov_version = found->fabric_attr->prov_version;
  *copy->fabric_attr = fabric;
  copy->src_addrlen = found->src_addrlen;
  copy->src_addr = std::malloc(found->src_addrlen);
  std::memcpy(copy->src_addr, found->src_addr, found->src_addrlen);
  Self(copy).exchange();
}

TEST(SocketsAlias, AFabricOfOneKindHasNoEndpointOfAnother) {
  const fi_ep_type types[] = {FI_EP_RDM, FI_EP_DGRAM};
  for (const int mine : {0, 1}) {
    const Info own = find(types[mine]), other = find(types[1 - mine]);
    Handle<fid_fabric> fabric;
    must(fi_fabric(own->fabric_attr, fabric.out(), nullptr));
    Handle<fid_domain> domain;
    must(fi_domain(fabric, own.get(), domain.out(), nullptr));
    Handle<fid_ep> ep;
    EXPECT_EQ(fi_endpoint(domain, other.get(), ep.out(), nullptr), -FI_EINVAL);
    must(fi_endpoint(domain, own.get(), ep.out(), nullptr));
  }
}

TEST(SocketsAlias, AFabricInHintsSaysWhichKind) {
  Handle<fid_fabric> fabric;
  must(fi_fabric(find(FI_EP_DGRAM)->fabric_attr, fabric.out(), nullptr));
  EXPECT_EQ(find(FI_EP_DGRAM)->fabric_attr->fabric, fabric.get());
  EXPECT_EQ(find(FI_EP_RDM)->fabric_attr->fabric, nullptr);
  const Info hints = hints_for(FI_EP_UNSPEC, FI_MSG);
  hints->fabric_attr->fabric = fabric;
  Info found;
  must(try_info(found, "127.0.0.1", nullptr, FI_SOURCE, hints.get()));
  for (const fi_info *one = found.get(); one != nullptr; one = one->next)
    EXPECT_EQ(one->ep_attr->type, FI_EP_DGRAM);
}

}  // namespace
}  // namespace weft::conformance
