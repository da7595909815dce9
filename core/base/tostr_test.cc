// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/tostr.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_trigger.h>
#include <rdma/providers/fi_log.h>
#include <weft/sdk/addresses/address.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

#include "core/base/info.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

template <class T>
std::string text_of(const T &value, fi_type type) {
  char text[8192];
  to_text(&value, type, text, sizeof text);
  return text;
}
std::string enum_text(uint32_t value, fi_type type) {
  return text_of(value, type);
}
std::string bits_text(uint64_t value, fi_type type) {
  return text_of(value, type);
}

TEST(ToText, NamesEnumerators) {
  EXPECT_EQ(enum_text(FI_EP_RDM, FI_TYPE_EP_TYPE), "FI_EP_RDM");
  EXPECT_EQ(enum_text(FI_SOCKADDR_IN6, FI_TYPE_ADDR_FORMAT), "FI_SOCKADDR_IN6");
  EXPECT_EQ(enum_text(FI_SOCKADDR_IP, FI_TYPE_ADDR_FORMAT), "FI_SOCKADDR_IP");
  EXPECT_EQ(enum_text(FI_THREAD_ENDPOINT, FI_TYPE_THREADING), "FI_THREAD_ENDPOINT");
  EXPECT_EQ(enum_text(FI_PROGRESS_CONTROL_UNIFIED, FI_TYPE_PROGRESS),
            "FI_PROGRESS_CONTROL_UNIFIED");
  EXPECT_EQ(enum_text(FI_PROTO_LNX, FI_TYPE_PROTOCOL), "FI_PROTO_LNX");
  EXPECT_EQ(enum_text(FI_AV_TABLE, FI_TYPE_AV_TYPE), "FI_AV_TABLE");
  EXPECT_EQ(enum_text(FI_FLOAT8_E5M2, FI_TYPE_ATOMIC_TYPE), "FI_FLOAT8_E5M2");
  EXPECT_EQ(enum_text(FI_VOID, FI_TYPE_ATOMIC_TYPE), "FI_VOID");
  EXPECT_EQ(enum_text(FI_DIFF, FI_TYPE_ATOMIC_OP), "FI_DIFF");
  EXPECT_EQ(enum_text(FI_NOOP, FI_TYPE_ATOMIC_OP), "FI_NOOP");
  EXPECT_EQ(enum_text(FI_JOIN_COMPLETE, FI_TYPE_EQ_EVENT), "FI_JOIN_COMPLETE");
  EXPECT_EQ(enum_text(FI_OP_CNTR_ADD, FI_TYPE_OP_TYPE), "FI_OP_CNTR_ADD");
  EXPECT_EQ(enum_text(FI_GATHER, FI_TYPE_COLLECTIVE_OP), "FI_GATHER");
  EXPECT_EQ(enum_text(FI_HMEM_SYNAPSEAI, FI_TYPE_HMEM_IFACE), "FI_HMEM_SYNAPSEAI");
  EXPECT_EQ(enum_text(FI_CQ_FORMAT_TAGGED, FI_TYPE_CQ_FORMAT), "FI_CQ_FORMAT_TAGGED");
  EXPECT_EQ(enum_text(FI_LOG_DEBUG, FI_TYPE_LOG_LEVEL), "debug");
  EXPECT_EQ(enum_text(FI_LOG_EP_CTRL, FI_TYPE_LOG_SUBSYS), "ep_ctrl");
  EXPECT_EQ(enum_text(FI_CQ_COND_THRESHOLD, FI_TYPE_CQ_WAIT_COND), "FI_CQ_COND_THRESHOLD");
  EXPECT_EQ(enum_text(FI_WAIT_POLLFD, FI_TYPE_WAIT_OBJ), "FI_WAIT_POLLFD");
}

TEST(ToText, UnknownValuesAreCalledSo) {
  EXPECT_EQ(enum_text(77, FI_TYPE_EP_TYPE), "Unknown");
  EXPECT_EQ(enum_text(UINT32_MAX, FI_TYPE_THREADING), "Unknown");
  EXPECT_EQ(enum_text(0x80000001u, FI_TYPE_PROTOCOL), "Provider specific");
  EXPECT_EQ(enum_text(0x80000001u, FI_TYPE_ADDR_FORMAT), "Provider specific");
  EXPECT_EQ(enum_text(0, static_cast<fi_type>(999)), "Unknown type");
  char text[16];
  to_text(nullptr, FI_TYPE_CAPS, text, sizeof text);
  EXPECT_STREQ(text, "(null)");
}

TEST(ToText, NamesBitsAndShowsUnknownOnesAsNumbers) {
  EXPECT_EQ(bits_text(0, FI_TYPE_CAPS), "");
  EXPECT_EQ(bits_text(FI_MSG | FI_HMEM | FI_DIRECTED_RECV, FI_TYPE_CAPS),
            "FI_MSG, FI_HMEM, FI_DIRECTED_RECV");
  EXPECT_EQ(bits_text(FI_MSG | 1ULL << 63, FI_TYPE_CAPS), "FI_MSG, 0x8000000000000000");
  EXPECT_EQ(bits_text(FI_INJECT | FI_COMPLETION, FI_TYPE_OP_FLAGS), "FI_COMPLETION, FI_INJECT");
  EXPECT_EQ(bits_text(FI_RECV | FI_TAGGED, FI_TYPE_CQ_EVENT_FLAGS), "FI_TAGGED, FI_RECV");
  EXPECT_EQ(bits_text(FI_CONTEXT | FI_CONTEXT2, FI_TYPE_MODE), "FI_CONTEXT2, FI_CONTEXT");
  EXPECT_EQ(bits_text(FI_ORDER_SAS | FI_ORDER_RMA_WAW, FI_TYPE_MSG_ORDER),
            "FI_ORDER_SAS, FI_ORDER_RMA_WAW");
  EXPECT_EQ(enum_text(FI_MR_BASIC, FI_TYPE_MR_MODE), "FI_MR_BASIC");
  EXPECT_EQ(enum_text(FI_MR_SCALABLE, FI_TYPE_MR_MODE), "FI_MR_SCALABLE");
  EXPECT_EQ(enum_text(FI_MR_LOCAL | FI_MR_PROV_KEY, FI_TYPE_MR_MODE),
            "FI_MR_LOCAL, FI_MR_PROV_KEY");
  EXPECT_EQ(text_of(0, FI_TYPE_VERSION), "2.6.0");
}

TEST(ToText, InfoHasTheShapeOfFiInfo) {
  fi_info *info = alloc_info();
  info->caps = FI_MSG | FI_SEND;
  info->addr_format = FI_SOCKADDR_IN;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(7471);
  inet_pton(AF_INET, "192.0.2.7", &in.sin_addr);
  info->src_addr = &in;
  info->src_addrlen = sizeof in;
  info->ep_attr->type = FI_EP_MSG;
  info->ep_attr->auth_key_size = 6;
  info->ep_attr->auth_key = reinterpret_cast<uint8_t *>(const_cast<char *>("secret"));
  info->ep_attr->max_msg_size = SIZE_MAX;
  info->fabric_attr->prov_name = const_cast<char *>("tcp");
  info->fabric_attr->api_version = FI_VERSION(1, 17);
  const std::string text = text_of(*info, FI_TYPE_INFO);
  EXPECT_THAT(text, StartsWith("fi_info:\n    caps: [ FI_MSG, FI_SEND ]\n    mode: [  ]\n"
                               "    addr_format: FI_SOCKADDR_IN\n    src_addrlen: 16\n"));
  EXPECT_THAT(text, HasSubstr("    src_addr: fi_sockaddr_in://192.0.2.7:7471\n"));
  EXPECT_THAT(
      text,
      HasSubstr("    dest_addr: (null)\n    handle: (nil)\n    fi_tx_attr:\n        caps: [  ]\n"));
  EXPECT_THAT(text, HasSubstr("        comp_order: [ FI_ORDER_NONE ]\n"));
  EXPECT_THAT(text, HasSubstr("    fi_ep_attr:\n        type: FI_EP_MSG\n"));
  EXPECT_THAT(text, HasSubstr("        max_msg_size: 18446744073709551615\n"));
  EXPECT_THAT(text, HasSubstr("        mem_tag_format: 0x0000000000000000\n"));
  EXPECT_THAT(text, HasSubstr("    fi_domain_attr:\n        domain: 0x0\n        name: (null)\n"));
  EXPECT_THAT(
      text,
      HasSubstr("        prov_name: tcp\n        prov_version: 0.0\n        api_version: 1.17\n"));
  EXPECT_THAT(text, testing::EndsWith("    nic: (nil)\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("secret")));

  // In a buffer of any length: a prefix of the whole text with a NUL, and nothing behind.
  std::string buffer;
  for (size_t size = 1; size < text.size() + 4; size++) {
    buffer.assign(text.size() + 8, '#');
    to_text(info, FI_TYPE_INFO, buffer.data(), size);
    const size_t length = strnlen(buffer.data(), buffer.size());
    ASSERT_LT(length, size);
    ASSERT_EQ(buffer.compare(0, length, text, 0, length), 0);
    ASSERT_EQ(length, std::min(size - 1, text.size()));
    ASSERT_EQ(buffer.find_first_not_of('#', size), std::string::npos);
  }
  to_text(info, FI_TYPE_INFO, nullptr, 0);

  info->src_addr = nullptr;
  info->ep_attr->auth_key = nullptr;
  info->fabric_attr->prov_name = nullptr;
  free_info(info);
}

TEST(ToText, MissingAttributesAreShownAsNull) {
  const fi_info info{};
  EXPECT_THAT(text_of(info, FI_TYPE_INFO),
              HasSubstr("    fi_ep_attr: (null)\n    fi_domain_attr: (null)\n"));
}

std::string source_text(uint32_t format, const void *addr, size_t size) {
  fi_info info{};
  info.addr_format = format;
  info.src_addr = const_cast<void *>(addr);
  info.src_addrlen = size;
  const std::string text = text_of(info, FI_TYPE_INFO);
  const size_t from = text.find("src_addr: ") + 10;
  return text.substr(from, text.find('\n', from) - from);
}

TEST(ToText, AddressesOfEveryFormat) {
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(1);
  in6.sin6_addr = in6addr_loopback;
  EXPECT_EQ(source_text(FI_SOCKADDR_IN6, &in6, sizeof in6), "fi_sockaddr_in6://[::1]:1");
  EXPECT_EQ(source_text(FI_SOCKADDR, &in6, sizeof in6), "fi_sockaddr_in6://[::1]:1");
  EXPECT_EQ(source_text(FI_ADDR_STR, "fi_x://yz", 6), "fi_x:/");
  EXPECT_EQ(source_text(FI_ADDR_STR, "fi_x\0://", 9), "fi_x");
  const uint64_t words[6] = {1, 2, 3, 4};
  EXPECT_EQ(source_text(FI_ADDR_PSMX2, words, 16), "fi_addr_psmx2://1:2");
  EXPECT_EQ(source_text(FI_ADDR_PSMX3, words, 32), "fi_addr_psmx3://1:2:3:4");
  EXPECT_EQ(source_text(FI_ADDR_CXI, words, 4), "fi_addr_cxi://0x00000001");
  EXPECT_EQ(source_text(FI_ADDR_EFA, words, 32), "fi_addr_efa://[100::200:0:0:0]:3:0");
  EXPECT_EQ(source_text(FI_SOCKADDR_IB, words, 48),
            "fi_sockaddr_ib://[200::300:0:0:0]:0x0:0x0:0x0");
  // Too short for its format, or of a format without a text: bytes.
  EXPECT_EQ(source_text(FI_SOCKADDR_IN6, &in6, 4), "fi_sockaddr://0a000001");
  EXPECT_EQ(source_text(FI_SOCKADDR_IN, "a", 1), "fi_sockaddr://61");
  EXPECT_EQ(source_text(FI_ADDR_UCX, "abc", 3), "fi_addr_ucx://616263");
  EXPECT_EQ(source_text(999, "abc", 3), "fi_addr://616263");
  const std::array<char, 100> much{};
  EXPECT_THAT(source_text(FI_ADDR_UCX, much.data(), much.size()), testing::EndsWith("00..."));
}

// The text is what fi_getinfo reads (the SDK's codec), so a printed name can be given to a program.
TEST(ToText, NamesOfDatagramEndpointsAreAddressesAgain) {
  unsigned char bytes[32] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const auto put = [&](size_t at, auto value) { std::memcpy(bytes + at, &value, sizeof value); };
  const auto text = [&] { return source_text(FI_ADDR_IB_UD, bytes, sizeof bytes); };
  put(16, uint32_t(0x11));
  put(20, uint16_t(4));
  put(22, uint16_t(0xffff));
  EXPECT_EQ(text(), "fi_addr_ib_ud://fe80::1:11/4/ffff/0");
  put(24, uint16_t(0x102));
  bytes[26] = 3;
  EXPECT_EQ(text(), "fi_addr_ib_ud://fe80::1:11/4/ffff/3?service=0x102");
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    for (size_t at = 0; at < 26; ++at) bytes[at] = i % 3 == 0 ? 0 : uint8_t(random());
    bytes[19] = 0;  // a queue pair number has 24 bits
    bytes[26] = uint8_t(random() % 16);
    const auto read = sdk::read_address(FI_ADDR_IB_UD, bytes, sizeof bytes);
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_EQ(text(), sdk::format_address_string(*read));
    const auto again = sdk::read_address(FI_ADDR_STR, text().c_str());
    ASSERT_TRUE(again) << text();
    EXPECT_EQ(*again, *read) << text();
  }
  EXPECT_EQ(source_text(FI_ADDR_IB_UD, "abc", 3), "fi_addr_ib_ud://616263") << "too short";
}

TEST(ToText, OtherStructs) {
  fi_av_attr av{};
  av.type = FI_AV_TABLE;
  av.count = 3;
  av.name = "shared";
  av.flags = FI_SYMMETRIC;
  EXPECT_THAT(text_of(av, FI_TYPE_AV_ATTR), StartsWith("fi_av_attr:\n    type: FI_AV_TABLE\n"));
  EXPECT_THAT(text_of(av, FI_TYPE_AV_ATTR), HasSubstr("    flags: [ FI_SYMMETRIC ]\n"));
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_DATA;
  cq.wait_obj = FI_WAIT_FD;
  EXPECT_THAT(text_of(cq, FI_TYPE_CQ_ATTR),
              HasSubstr("    format: FI_CQ_FORMAT_DATA\n    wait_obj: FI_WAIT_FD\n"));
  fi_cntr_attr cntr{};
  cntr.events = FI_CNTR_EVENTS_BYTES;
  EXPECT_THAT(text_of(cntr, FI_TYPE_CNTR_ATTR), HasSubstr("    events: FI_CNTR_EVENTS_BYTES\n"));
  fi_mr_attr mr{};
  mr.mr_iov = reinterpret_cast<const iovec *>(1);  // must not be followed
  mr.access = FI_REMOTE_READ;
  mr.requested_key = 255;
  mr.iface = FI_HMEM_CUDA;
  EXPECT_THAT(text_of(mr, FI_TYPE_MR_ATTR), HasSubstr("    access: [ FI_REMOTE_READ ]\n"));
  EXPECT_THAT(text_of(mr, FI_TYPE_MR_ATTR), HasSubstr("    requested_key: 0xff\n"));
  fi_cq_err_entry error{};
  error.err = FI_ETRUNC;
  error.flags = FI_RECV | FI_MSG;
  EXPECT_THAT(text_of(error, FI_TYPE_CQ_ERR_ENTRY), HasSubstr("    err: 265 (Message truncated"));
  EXPECT_THAT(text_of(error, FI_TYPE_CQ_ERR_ENTRY), HasSubstr("    flags: [ FI_MSG, FI_RECV ]\n"));
  fi_tx_attr tx{};
  tx.tclass = 0x201;
  EXPECT_THAT(text_of(tx, FI_TYPE_TX_ATTR), testing::EndsWith("    tclass: 0x201\n"));
}

TEST(ToText, Nic) {
  fi_device_attr device{};
  device.name = const_cast<char *>("mlx5_0");
  fi_bus_attr bus{};
  bus.bus_type = FI_BUS_PCI;
  bus.attr.pci.bus_id = 94;
  fi_link_attr link{};
  link.speed = 100;
  link.state = FI_LINK_UP;
  fid_nic nic{};
  nic.device_attr = &device;
  nic.bus_attr = &bus;
  nic.link_attr = &link;
  fi_info info{};
  info.nic = &nic;
  const std::string text = text_of(info, FI_TYPE_INFO);
  EXPECT_THAT(text, HasSubstr("    nic:\n        fi_device_attr:\n            name: mlx5_0\n"));
  EXPECT_THAT(text, HasSubstr("            bus_type: FI_BUS_PCI\n            fi_pci_attr:\n"
                              "                domain_id: 0\n                bus_id: 94\n"));
  EXPECT_THAT(text, HasSubstr("            speed: 100\n            state: FI_LINK_UP\n"));
}

int good_tostr(const struct fid *, char *buf, size_t len) {
  std::snprintf(buf, len, "an object that tells a long story about itself");
  return 0;
}
int bad_tostr(const struct fid *, char *buf, size_t len) {
  std::snprintf(buf, len, "half");
  return -FI_ENOSYS;
}

TEST(ToText, FidsUseTheirOwnText) {
  struct fid fid {};
  EXPECT_THAT(text_of(fid, FI_TYPE_FID), StartsWith("fid: 0x"));
  fi_ops ops{};
  ops.size = sizeof ops;
  ops.tostr = good_tostr;
  fid.ops = &ops;
  EXPECT_THAT(text_of(fid, FI_TYPE_FID), StartsWith("an object"));
  char small[8];
  to_text(&fid, FI_TYPE_FID, small, sizeof small);
  EXPECT_STREQ(small, "an obje");
  ops.tostr = bad_tostr;
  EXPECT_THAT(text_of(fid, FI_TYPE_FID), StartsWith("fid: 0x"));
  ops.tostr = good_tostr;
  ops.size = offsetof(fi_ops, tostr);  // an older provider's table ends before it
  EXPECT_THAT(text_of(fid, FI_TYPE_FID), StartsWith("fid: 0x"));
}

TEST(ErrorText, KnowsSystemAndOwnNumbersOfEitherSign) {
  EXPECT_STREQ(error_text(0), "Success");
  EXPECT_STREQ(error_text(FI_EAGAIN), "Resource temporarily unavailable");
  EXPECT_STREQ(error_text(-FI_EAGAIN), "Resource temporarily unavailable");
  EXPECT_STREQ(error_text(9999), "Unknown error");
  EXPECT_STREQ(error_text(INT32_MIN), "Unknown error");
  std::string seen;
  for (int error = FI_EOTHER; error < FI_ERRNO_MAX; error++) {
    EXPECT_STREQ(error_text(error), error_text(-error));
    EXPECT_EQ(seen.find(error_text(error)), std::string::npos) << error;
    EXPECT_STRNE(error_text(error), "Unknown error");
    seen += error_text(error);
    seen += '|';
  }
  EXPECT_STREQ(error_text(FI_ERRNO_MAX), "Unknown error");
}

}  // namespace
}  // namespace weft
