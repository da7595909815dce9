// SPDX-License-Identifier: BSD-2-Clause
// Address vectors of the formats of devices, and of those that stand for several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_addresses.h"
#include "plugin-api/sdk/testing/test_av.h"
#include "plugin-api/sdk/testing/test_rounds.h"
#include "weft/sdk/addresses/av.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Kind {
  uint32_t format, native;
  const char *name;
};
// Prints the name of a test's parameter.
std::ostream &operator<<(std::ostream &out, const Kind &kind) {
  return out << kind.name;
}

std::vector<uint32_t> formats_in(uint32_t native) {
  if (native == FI_SOCKADDR_IP) return {FI_SOCKADDR_IN, FI_SOCKADDR_IN6};
  return {native};
}

class AvFormats : public testing::TestWithParam<Kind> {
 protected:
  // What fi_av_insert takes: the address, or a pointer to its text.
  int insert(Vector &v, const Address &address, fi_addr_t *out, uint64_t flags = 0,
             void *context = nullptr) {
    if (GetParam().format != FI_ADDR_STR)
      return fi_av_insert(v.c, address.data(), 1, out, flags, context);
    const std::string text = format_address_string(address);
    const char *pointer = text.c_str();
    return fi_av_insert(v.c, &pointer, 1, out, flags, context);
  }
  Address lookup(Vector &v, fi_addr_t index) {
    char buffer[200];
    size_t length = sizeof buffer;
    if (fi_av_lookup(v.c, index, buffer, &length) != 0) return {};
    return read_address(GetParam().format, buffer, length).value();
  }
};

TEST_P(AvFormats, InsertFindLookUpAndRemove) {
  Vector v(GetParam().format, {}, GetParam().native);
  std::mt19937 random(3);
  for (const uint32_t native : formats_in(GetParam().native)) {
    const Address a = some_address(native, random), b = some_address(native, random);
    fi_addr_t at_a = 4711, at_b = 4711;
    ASSERT_EQ(insert(v, a, &at_a), 1);
    ASSERT_EQ(insert(v, b, &at_b), 1);
    EXPECT_EQ(lookup(v, at_a), a);
    EXPECT_EQ(lookup(v, at_b), b);
    EXPECT_EQ(v.find(a), at_a);
    EXPECT_EQ(v.find(b), at_b);
    EXPECT_EQ(v.remove(at_a), 0);
    EXPECT_EQ(v.find(a), Av::kNone);
    EXPECT_EQ(lookup(v, at_a), Address());
    fi_addr_t again = 4711;
    ASSERT_EQ(insert(v, b, &again), 1) << "a second time";
    EXPECT_EQ(again, at_a);
    EXPECT_EQ(v.find(b), std::min(at_a, at_b));
    EXPECT_EQ(v.remove(at_a), 0);
    EXPECT_EQ(v.find(b), at_b);
  }
}

TEST_P(AvFormats, TextOfAnAddress) {
  Vector v(GetParam().format, {}, GetParam().native);
  for (const uint32_t native : formats_in(GetParam().native)) {
    const Address address = numbered_address(native, 77);
    const std::string text = format_address_string(address);
    const void *native_form =
        GetParam().format == FI_ADDR_STR ? static_cast<const void *>(text.c_str()) : address.data();
    char buffer[200];
    size_t length = sizeof buffer;
    EXPECT_EQ(fi_av_straddr(v.c, native_form, buffer, &length), buffer);
    EXPECT_EQ(buffer, text);
    EXPECT_EQ(length, text.size() + 1);
    length = 5;
    fi_av_straddr(v.c, native_form, buffer, &length);
    EXPECT_EQ(buffer, text.substr(0, 4));
    EXPECT_EQ(length, text.size() + 1) << "what is needed";
  }
}

TEST_P(AvFormats, ManyAtOnceAndTheirErrors) {
  Vector v(GetParam().format, {}, GetParam().native);
  const std::vector<uint32_t> natives = formats_in(GetParam().native);
  std::string bytes;
  std::vector<Address> peers;
  std::vector<std::string> texts;
  for (uint32_t n = 0; n < 20; ++n) {
    peers.push_back(numbered_address(natives[n % natives.size()], n + 1));
    bytes.append(static_cast<const char *>(peers.back().data()), peers.back().size());
    texts.push_back(format_address_string(peers.back()));
  }
  // The last one names no peer: no address, or none that could be.
  std::string spoiled(numbered_address(natives[0], 1).size(), '\0');
  if (GetParam().native == FI_ADDR_CXI) std::ranges::fill(spoiled, '\xff');
  bytes += spoiled;
  texts.push_back("fi_sockaddr_in://0.0.0.0:1");
  std::vector<const char *> pointers;
  for (const std::string &text : texts) pointers.push_back(text.c_str());
  const void *array =
      GetParam().format == FI_ADDR_STR ? static_cast<const void *>(pointers.data()) : bytes.data();
  fi_addr_t out[21];
  int errors[21];
  EXPECT_EQ(fi_av_insert(v.c, array, 21, out, FI_SYNC_ERR, errors), 20);
  for (uint32_t n = 0; n < 20; ++n) {
    EXPECT_EQ(errors[n], 0);
    EXPECT_EQ(lookup(v, out[n]), peers[n]);
    EXPECT_EQ(v.find(peers[n]), out[n]);
  }
  EXPECT_NE(errors[20], 0);
  EXPECT_EQ(out[20], kNotAvailable);
  EXPECT_THAT(v.domain.instance.log(), ElementsAre(HasSubstr("1 of 21 addresses")));
}

TEST_P(AvFormats, UserIdsStandInCompletions) {
  Vector v(GetParam().format, {}, GetParam().native);
  const uint32_t native = formats_in(GetParam().native)[0];
  fi_addr_t id = 0xabcdef0123456789;
  ASSERT_EQ(insert(v, numbered_address(native, 5), &id, FI_AV_USER_ID), 1);
  EXPECT_EQ(id, 0u);
  EXPECT_EQ(v.reported(0), 0xabcdef0123456789);
  EXPECT_EQ(v.find(numbered_address(native, 5)), 0u);
}

TEST_P(AvFormats, ProcessesShareAVector) {
  Name name;
  Vector a(GetParam().format, named(name.text), GetParam().native);
  Vector b(GetParam().format, named(name.text), GetParam().native);
  std::mt19937 random(5);
  std::vector<Address> peers;
  for (int round = 0; round < 50; ++round) {
    for (const uint32_t native : formats_in(GetParam().native)) {
      peers.push_back(some_address(native, random));
      fi_addr_t out = 4711;
      ASSERT_EQ(insert(round % 2 == 0 ? a : b, peers.back(), &out), 1);
      ASSERT_EQ(out, peers.size() - 1);
    }
  }
  for (size_t i = 0; i < peers.size(); ++i) {
    ASSERT_EQ(lookup(a, i), peers[i]);
    ASSERT_EQ(lookup(b, i), peers[i]);
  }
  ASSERT_EQ(a.remove(3), 0);
  EXPECT_EQ(lookup(b, 3), Address());
}

// What an address vector is, in a few lines.
struct Model {
  uint32_t lowest() const { return free.empty() ? end : *free.begin(); }
  uint32_t insert(const Address &address) {
    const uint32_t index = lowest();
    if (index == end) ++end;
    free.erase(index);
    entries[index] = address;
    indices[address].insert(index);
    return index;
  }
  bool remove(uint32_t index) {
    const auto it = entries.find(index);
    if (it == entries.end()) return false;
    const auto where = indices.find(it->second);
    where->second.erase(index);
    if (where->second.empty()) indices.erase(where);
    entries.erase(it);
    free.insert(index);
    return true;
  }
  uint32_t find(const Address &address) const {
    const auto it = indices.find(address);
    return it != indices.end() ? *it->second.begin() : Av::kNone;
  }
  std::map<uint32_t, Address> entries;
  std::map<Address, std::set<uint32_t>> indices;
  std::set<uint32_t> free;
  uint32_t end = 0;
};

TEST_P(AvFormats, BehaveAsTheModelInRandomOperations) {
  const std::vector<uint32_t> natives = formats_in(GetParam().native);
  std::mt19937 random(GetParam().format * 31 + GetParam().native);
  Vector v(GetParam().format, {}, GetParam().native);
  Model model;
  const auto some = [&] {
    return numbered_address(natives[random() % natives.size()], 1 + random() % 3000);
  };
  const unsigned steps = rounds(100'000);
  for (unsigned step = 0; step < steps; ++step) {
    const bool growing = step / (steps / 10) % 2 == 0;
    const uint32_t what = random() % 100;
    if (what < (growing ? 45u : 15u)) {
      const Address address = some();
      fi_addr_t out = 4711;
      ASSERT_EQ(insert(v, address, &out), 1);
      ASSERT_EQ(out, model.insert(address)) << step;
    } else if (what < 60) {
      const auto index = uint32_t(random() % (model.end + 3));
      ASSERT_EQ(v.remove(index), model.remove(index) ? 0 : -FI_EINVAL) << step;
    } else if (what < 80) {
      const Address address = some();
      ASSERT_EQ(v.find(address), model.find(address)) << step;
    } else {
      const auto index = uint32_t(random() % (model.end + 3));
      const auto it = model.entries.find(index);
      Guard guard(v.domain.engine.lock());
      ASSERT_EQ(v.av->address(index),
                it == model.entries.end() ? std::nullopt : std::optional<Address>(it->second))
          << step;
    }
    ASSERT_EQ(v.av->count(), model.entries.size());
  }
  EXPECT_GT(model.end, steps / 100);
}

INSTANTIATE_TEST_SUITE_P(All, AvFormats,
                         testing::Values(Kind{FI_SOCKADDR_IB, FI_SOCKADDR_IB, "SOCKADDR_IB"},
                                         Kind{FI_ADDR_IB_UD, FI_ADDR_IB_UD, "ADDR_IB_UD"},
                                         Kind{FI_ADDR_CXI, FI_ADDR_CXI, "ADDR_CXI"},
                                         Kind{FI_SOCKADDR, FI_SOCKADDR_IP, "SOCKADDR"},
                                         Kind{FI_SOCKADDR, FI_SOCKADDR_IB, "SOCKADDR_of_IB"},
                                         Kind{FI_ADDR_STR, FI_SOCKADDR_IP, "STR"},
                                         Kind{FI_ADDR_STR, FI_ADDR_IB_UD, "STR_of_IB_UD"},
                                         Kind{FI_ADDR_STR, kHostName, "STR_of_names"}),
                         [](const auto &info) { return std::string(info.param.name); });

// Programs pass what fi_getname has given them, and not a pointer to it.
TEST(AvFormat, NamesWithinAHostMayStandInThemselves) {
  Vector v(FI_ADDR_STR, {}, kHostName);
  static constexpr char kNames[] = "fi_shm://one\0fi_ns://two\0fi_shm://three";
  fi_addr_t out[3];
  ASSERT_EQ(fi_av_insert(v.c, kNames, 3, out, 0, nullptr), 3);
  const char *const texts[] = {"fi_shm://one", "fi_shm://two", "fi_shm://three"};
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(v.find(read_address(FI_ADDR_STR, texts[i]).value()), out[i]);
}

TEST(AvFormat, OtherFormatsThanTheProvidersAreRefused) {
  const Address ud = numbered_address(FI_ADDR_IB_UD, 1), ib = numbered_address(FI_SOCKADDR_IB, 1);
  Vector sockets(FI_SOCKADDR), texts(FI_ADDR_STR);
  EXPECT_EQ(sockets.insert(ib), kNotAvailable);
  EXPECT_THAT(sockets.domain.instance.log(), ElementsAre(HasSubstr("fi_sockaddr_ib://")));
  const std::string text = format_address_string(ud);
  const char *pointer = text.c_str();
  fi_addr_t out = 4711;
  EXPECT_EQ(fi_av_insert(texts.c, &pointer, 1, &out, 0, nullptr), 0);
  EXPECT_EQ(out, kNotAvailable);
  EXPECT_THAT(texts.domain.instance.log(), ElementsAre(HasSubstr(text)));
}

TEST(AvFormat, NamesAreResolvedForIpOnly) {
  Vector v(FI_ADDR_IB_UD);
  fi_addr_t out = 4711;
  EXPECT_EQ(fi_av_insertsvc(v.c, "localhost", "7471", &out, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_av_insertsym(v.c, "10.0.0.1", 1, "7471", 1, &out, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(out, 4711u);
  const Address peer = numbered_address(FI_ADDR_IB_UD, 7);
  const std::string text = format_address_string(peer);
  EXPECT_EQ(fi_av_insertsvc(v.c, text.c_str(), "7471", &out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsvc(v.c, text.c_str(), nullptr, &out, 0, nullptr), 1);
  EXPECT_EQ(v.find(peer), out);
  EXPECT_EQ(fi_av_insertsvc(v.c, "fi_sockaddr_in://10.0.0.1:1", nullptr, &out, 0, nullptr), 0);
  EXPECT_THAT(v.domain.instance.log(), ElementsAre(HasSubstr("10.0.0.1:1")));
}

TEST(AvFormat, TheFormatOfAFile) {
  Name name;
  Vector v(FI_ADDR_STR, named(name.text), FI_ADDR_IB_UD);
  TestDomain domain;
  EXPECT_EQ(try_open(domain, named(name.text), FI_ADDR_STR), -FI_EINVAL) << "of another provider";
  EXPECT_THAT(domain.instance.log(), ElementsAre(HasSubstr("choose another name")));
}

TEST(AvFormat, OfAnInfo) {
  fi_info info{};
  for (const uint32_t format : {FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOCKADDR_IP,
                                FI_ADDR_STR, FI_FORMAT_UNSPEC, FI_ADDR_PSMX}) {
    info.addr_format = format;
    EXPECT_EQ(native_format(info), uint32_t(FI_SOCKADDR_IP)) << format;
  }
  for (const uint32_t format : {FI_SOCKADDR_IB, FI_ADDR_IB_UD, FI_ADDR_CXI}) {
    info.addr_format = format;
    EXPECT_EQ(native_format(info), format);
    const Address address = numbered_address(format, 1);
    std::string text = format_address_string(address);
    info.addr_format = FI_ADDR_STR;
    info.src_addr = text.data();
    info.src_addrlen = text.size() + 1;
    EXPECT_EQ(native_format(info), format) << "by its source address";
    std::swap(info.src_addr, info.dest_addr);
    std::swap(info.src_addrlen, info.dest_addrlen);
    EXPECT_EQ(native_format(info), format) << "by its destination";
    info.dest_addr = nullptr;
  }
}

TEST(AvFormat, BitsOfAReceiveContextReachTheProvider) {
  fi_av_attr attr{};
  attr.rx_ctx_bits = 4;
  Vector v(FI_ADDR_IB_UD, attr);
  const fi_addr_t peer = v.insert(numbered_address(FI_ADDR_IB_UD, 1));
  const fi_addr_t third = fi_rx_addr(peer, 3, 4), last = fi_rx_addr(peer, 15, 4);
  EXPECT_EQ(v.index_of(third), peer);
  EXPECT_EQ(v.av->rx_context_of(peer), 0u);
  EXPECT_EQ(v.av->rx_context_of(third), 3u);
  EXPECT_EQ(v.av->rx_context_of(last), 15u);
  Vector without;
  EXPECT_EQ(without.av->rx_context_of(third), 0u) << "no bits are reserved";
}

// A chunk that holds entries of one size gets a larger one.
TEST(AvFormat, EntriesStayWhereALargerOneComes) {
  Vector v(FI_SOCKADDR);
  for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(v.insert(v4(i + 1)), i);
  ASSERT_EQ(v.remove(40), 0);
  ASSERT_EQ(v.insert(v6(7, 3)), 40u);
  for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(v.find(v4(i + 1)), i == 40 ? Av::kNone : i);
  EXPECT_EQ(v.find(SockAddr(v6(7, 3))), 40u);
  EXPECT_EQ(v.find(SockAddr(v6(7, 4))), Av::kNone);
}

// A datagram says no more of its sender than that.
TEST(AvIbUd, FindsAQueuePairByItsNumberAndItsGid) {
  Vector v(FI_ADDR_IB_UD, {}, FI_ADDR_IB_UD);
  const auto name = [](const char *text) {
    const std::string full = std::string("fi_addr_ib_ud://") + text;
    return read_address(FI_ADDR_STR, full.c_str(), full.size() + 1).value();
  };
  fi_addr_t with_gid = 0, with_lid = 0;
  const Address a = name("fe80::1:11/4/ffff/2"), b = name("fe80:::11/5/ffff/0");
  ASSERT_EQ(fi_av_insert(v.c, a.data(), 1, &with_gid, 0, nullptr), 1);
  ASSERT_EQ(fi_av_insert(v.c, b.data(), 1, &with_lid, 0, nullptr), 1);
  EXPECT_EQ(v.find(name("fe80::1:11/0/0/0")), with_gid);
  EXPECT_EQ(v.find(name("fe80::1:11/5/0/0")), with_gid);
  EXPECT_EQ(v.find(name("fe80::1:12/4/ffff/2")), Av::kNone);
  EXPECT_EQ(v.find(name("fe80::2:11/4/ffff/2")), Av::kNone);
  EXPECT_EQ(v.find(name("fe80:::11/5/0/0")), with_lid);
  EXPECT_EQ(v.find(name("fe80:::11/4/0/0")), Av::kNone);
  ASSERT_EQ(fi_av_remove(v.c, &with_gid, 1, 0), 0);
  EXPECT_EQ(v.find(name("fe80::1:11/0/0/0")), Av::kNone);
}

}  // namespace
}  // namespace weft::sdk
