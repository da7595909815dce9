// SPDX-License-Identifier: BSD-2-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "plugin-api/sdk/testing/test_av.h"
#include "weft/sdk/addresses/av.h"
#include "weft/sdk/objects/domain.h"
#include "weft/sdk/objects/eq.h"
#include "weft/sdk/objects/ops.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(AvInsert, IndicesFollowTheOrderAcrossCalls) {
  for (const fi_av_type type : {FI_AV_TABLE, FI_AV_MAP}) {
    fi_av_attr attr{};
    attr.type = type;
    Vector v(FI_SOCKADDR_IN, attr);
    std::vector<sockaddr_in> peers;
    for (uint32_t i = 0; i < 1000; ++i) peers.push_back(v4(i + 1));
    std::vector<fi_addr_t> out(1000);
    ASSERT_EQ(fi_av_insert(v.c, peers.data(), 300, out.data(), FI_MORE, nullptr), 300);
    ASSERT_EQ(fi_av_insert(v.c, peers.data() + 300, 700, out.data() + 300, 0, nullptr), 700);
    Guard guard(v.domain.engine.lock());
    for (uint32_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(out[i], i);
      EXPECT_EQ(v.av->index_of(i), i);
      EXPECT_EQ(v.av->address(i), SockAddr(peers[i]));
    }
    EXPECT_EQ(v.av->index_of(1000), Av::kNone);
    EXPECT_EQ(v.av->address(1000), std::nullopt);
    EXPECT_EQ(v.av->address(Av::kNone), std::nullopt);
    EXPECT_EQ(v.av->capacity(), 1000u);
    EXPECT_EQ(v.av->count(), 1000u);
  }
}

TEST(AvInsert, ADomainMayRefuseAPeer) {
  Vector v;
  v.domain.context.check_peer = [](DomainContext &, const Address &peer) {
    return peer.to_string().find("10.0.0.2") == std::string::npos ? 0 : -FI_EHOSTUNREACH;
  };
  const sockaddr_in peers[] = {v4(1), v4(2), v4(3)};
  fi_addr_t out[3];
  int errors[3];
  EXPECT_EQ(fi_av_insert(v.c, peers, 3, out, FI_SYNC_ERR, errors), 2);
  EXPECT_EQ(errors[1], FI_EHOSTUNREACH);
  EXPECT_EQ(out[1], FI_ADDR_NOTAVAIL);
  EXPECT_THAT(v.domain.instance.log(), ElementsAre(HasSubstr("is refused: ")));
}

TEST(AvInsert, ATableNeedsNoArrayOfResults) {
  Vector v;
  const sockaddr_in peers[] = {v4(1), v4(2)};
  EXPECT_EQ(fi_av_insert(v.c, peers, 2, nullptr, 0, nullptr), 2);
  EXPECT_EQ(v.lookup(1), "10.0.0.2:7471");
  fi_av_attr attr{};
  attr.type = FI_AV_MAP;
  Vector map(FI_SOCKADDR_IN, attr);
  EXPECT_EQ(fi_av_insert(map.c, peers, 2, nullptr, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert(map.c, nullptr, 0, nullptr, 0, nullptr), 0);
}

TEST(AvInsert, SkipsAddressesThatAreNoPeers) {
  Vector v;
  sockaddr_in peers[] = {v4(1), v4(2), v4(3), v4(4, 0), v4(5), v4(6)};
  peers[1].sin_family = AF_UNIX;
  peers[4].sin_addr.s_addr = 0;
  fi_addr_t out[6];
  int errors[6] = {-1, -1, -1, -1, -1, -1};
  EXPECT_EQ(fi_av_insert(v.c, peers, 6, out, FI_SYNC_ERR, errors), 3);
  EXPECT_THAT(out, ElementsAre(0, kNotAvailable, 1, kNotAvailable, kNotAvailable, 2));
  EXPECT_THAT(errors, ElementsAre(0, FI_EINVAL, 0, FI_EADDRNOTAVAIL, FI_EADDRNOTAVAIL, 0));
  EXPECT_THAT(v.domain.instance.log(), ElementsAre(HasSubstr("3 of 6 addresses")));
  EXPECT_EQ(v.lookup(1), "10.0.0.3:7471") << "the lowest unused index";
  EXPECT_EQ(v.lookup(2), "10.0.0.6:7471");
  EXPECT_EQ(v.lookup(3), "none");
}

TEST(AvInsert, RefusesInvalidArguments) {
  Vector v;
  const sockaddr_in one = v4(1);
  fi_addr_t out = 5;
  EXPECT_EQ(fi_av_insert(v.c, &one, 1, &out, FI_PEEK, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_insert(v.c, &one, 1, &out, FI_SYNC_ERR, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert(v.c, nullptr, 1, &out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert(v.c, &one, size_t(INT_MAX) + 1, &out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insert(v.c, &one, 1, nullptr, FI_AV_USER_ID, nullptr), -FI_EINVAL);
  EXPECT_EQ(out, 5u);
  EXPECT_EQ(v.av->count(), 0u);
  EXPECT_THAT(v.domain.instance.log(), IsEmpty());
}

TEST(AvInsert, TakesEveryFormat) {
  {
    Vector v(FI_SOCKADDR_IN6);
    const sockaddr_in6 peers[] = {v6(1), v6(2)};
    fi_addr_t out[2];
    EXPECT_EQ(fi_av_insert(v.c, peers, 2, out, 0, nullptr), 2);
    EXPECT_EQ(v.lookup(out[1]), "[fe80::2]:7471");
    sockaddr_in6 no = v6(3);
    no.sin6_family = AF_INET;
    EXPECT_EQ(fi_av_insert(v.c, &no, 1, out, 0, nullptr), 0);
  }
  for (const uint32_t format : {uint32_t(FI_SOCKADDR), uint32_t(FI_SOCKADDR_IP)}) {
    // Each address directly follows the one before. Its family says how long it is.
    Vector v(format);
    char peers[2 * sizeof(sockaddr_in) + sizeof(sockaddr_in6)];
    const sockaddr_in first = v4(1), last = v4(3);
    const sockaddr_in6 middle = v6(2);
    std::memcpy(peers, &first, sizeof first);
    std::memcpy(peers + sizeof first, &middle, sizeof middle);
    std::memcpy(peers + sizeof first + sizeof middle, &last, sizeof last);
    fi_addr_t out[3];
    EXPECT_EQ(fi_av_insert(v.c, peers, 3, out, 0, nullptr), 3);
    EXPECT_EQ(v.lookup(0), "10.0.0.1:7471");
    EXPECT_EQ(v.lookup(1), "[fe80::2]:7471");
    EXPECT_EQ(v.lookup(2), "10.0.0.3:7471");
  }
  Vector v(FI_ADDR_STR);
  const char *peers[] = {"fi_sockaddr_in://10.0.0.1:7471", "nonsense", nullptr,
                         "fi_sockaddr_in6://[fe80::2]:7471"};
  fi_addr_t out[4];
  EXPECT_EQ(fi_av_insert(v.c, peers, 4, out, 0, nullptr), 2);
  EXPECT_THAT(out, ElementsAre(0, kNotAvailable, kNotAvailable, 1));
  EXPECT_EQ(v.lookup(0), peers[0]);
  EXPECT_EQ(v.lookup(1), peers[3]);
}

TEST(AvInsertsvc, ResolvesNames) {
  Vector v(FI_SOCKADDR_IN);
  fi_addr_t out[2] = {7, 7};
  int error = -1;
  EXPECT_EQ(fi_av_insertsvc(v.c, "localhost", "7471", out, 0, nullptr), 1);
  EXPECT_EQ(v.lookup(out[0]), "127.0.0.1:7471");
  EXPECT_EQ(fi_av_insertsvc(v.c, "fi_sockaddr_in://10.0.0.9:5", nullptr, out, 0, nullptr), 1);
  EXPECT_EQ(v.lookup(out[0]), "10.0.0.9:5");
  EXPECT_EQ(fi_av_insertsvc(v.c, "fe80::1", "5", out, FI_SYNC_ERR, &error), 0);
  EXPECT_EQ(error, FI_ENODATA) << "the address is not of the vector's family";
  EXPECT_EQ(out[0], kNotAvailable);
  EXPECT_EQ(fi_av_insertsvc(v.c, "10.0.0.1", "70000", out, FI_SYNC_ERR, &error), 0);
  EXPECT_EQ(error, FI_EINVAL);
  EXPECT_EQ(fi_av_insertsvc(v.c, "fi_sockaddr_in://10.0.0.9:5", "5", out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsvc(v.c, nullptr, "5", out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsvc(v.c, "10.0.0.1", "5", out, FI_PEEK, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(v.av->count(), 2u);
}

TEST(AvInsertsym, CountsServicesThenNodesUp) {
  Vector v;
  fi_addr_t out[4];
  ASSERT_EQ(fi_av_insertsym(v.c, "10.1.1.255", 2, "5000", 2, out, 0, nullptr), 4);
  EXPECT_EQ(v.lookup(0), "10.1.1.255:5000");
  EXPECT_EQ(v.lookup(1), "10.1.1.255:5001");
  EXPECT_EQ(v.lookup(2), "10.1.2.0:5000");
  EXPECT_EQ(v.lookup(3), "10.1.2.0:5001");
  Vector wide(FI_SOCKADDR_IN6);
  ASSERT_EQ(fi_av_insertsym(wide.c, "2001:db8::ffff", 2, "1", 1, out, 0, nullptr), 2);
  EXPECT_EQ(wide.lookup(1), "[2001:db8::1:0]:1");
}

TEST(AvInsertsym, CountsTheNumberAtTheEndOfAName) {
  // The resolver takes these for addresses; inet_pton does not.
  Vector v;
  fi_addr_t out[3];
  ASSERT_EQ(fi_av_insertsym(v.c, "127.9", 3, "5", 1, out, 0, nullptr), 3);
  EXPECT_EQ(v.lookup(0), "127.0.0.9:5");
  EXPECT_EQ(v.lookup(1), "127.0.0.10:5");
  EXPECT_EQ(v.lookup(2), "127.0.0.11:5");
  ASSERT_EQ(fi_av_insertsym(v.c, "127.06", 2, "5", 1, out, 0, nullptr), 2);
  EXPECT_EQ(v.lookup(out[1]), "127.0.0.7:5") << "the number keeps its width: 127.07";
  EXPECT_EQ(fi_av_insertsym(v.c, "localhost", 1, "5", 1, out, 0, nullptr), 1);
  EXPECT_EQ(fi_av_insertsym(v.c, "localhost", 2, "5", 1, out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsym(v.c, "node99999999999999999999", 2, "5", 1, out, 0, nullptr),
            -FI_EINVAL);
}

TEST(AvInsertsym, SkipsAddressesThatDoNotExist) {
  Vector v;
  fi_addr_t out[6];
  int errors[6];
  EXPECT_EQ(fi_av_insertsym(v.c, "255.255.255.254", 2, "65534", 3, out, FI_SYNC_ERR, errors), 4);
  EXPECT_THAT(errors, ElementsAre(0, 0, FI_EINVAL, 0, 0, FI_EINVAL));
  EXPECT_EQ(fi_av_insertsym(v.c, "255.255.255.255", 2, "1", 1, out, 0, nullptr), 1);
  EXPECT_EQ(out[1], kNotAvailable);
  EXPECT_EQ(fi_av_insertsym(v.c, "fe80::1", 1, "1", 1, out, 0, nullptr), 0)
      << "the vector takes IPv4 only";
  EXPECT_EQ(fi_av_insertsym(v.c, "10.0.0.1", 0, "1", 1, out, 0, nullptr), 0);
  EXPECT_EQ(fi_av_insertsym(v.c, "10.0.0.1", 1, "1", 0, out, 0, nullptr), 0);
  EXPECT_EQ(fi_av_insertsym(v.c, "10.0.0.1", SIZE_MAX, "1", 2, out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsym(v.c, nullptr, 1, "1", 1, out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsym(v.c, "10.0.0.1", 1, nullptr, 1, out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsym(v.c, "10.0.0.1", 1, "99999", 1, out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsym(v.c, "10.0.0.1", 1, "1", 1, out, FI_PEEK, nullptr), -FI_EBADFLAGS);
}

// ---- asynchronous ----

struct Asynchronous {
  explicit Asynchronous(bool bound = true) {
    fabric.fid.fclass = FI_CLASS_FABRIC;
    fabric.api_version = FI_VERSION(2, 6);
    eq = *Eq::open(v.domain.instance.c(), &fabric.fid, children, nullptr, nullptr);
    if (bound) {
      EXPECT_EQ(fi_av_bind(v.c, eq->base(), 0), 0);
    }
  }
  ~Asynchronous() {
    EXPECT_EQ(fi_close(&v.c->fid), 0);
    v.c = nullptr;
    EXPECT_EQ(fi_close(eq->base()), 0);
  }
  static fi_av_attr attr() {
    fi_av_attr attr{};
    attr.flags = FI_EVENT;
    return attr;
  }
  // The errors, as index:error, then the count of the completion.
  std::string events(void *context) {
    std::string text;
    for (;;) {
      uint32_t event = 0;
      fi_eq_entry entry{};
      const ssize_t n = fi_eq_read(eq->c(), &event, &entry, sizeof entry, 0);
      if (n == -FI_EAVAIL) {
        fi_eq_err_entry error{};
        EXPECT_EQ(fi_eq_readerr(eq->c(), &error, 0), ssize_t(sizeof error));
        EXPECT_EQ(error.fid, &v.c->fid);
        EXPECT_EQ(error.context, context);
        text += std::to_string(error.data) + ":" + std::to_string(error.err) + " ";
        continue;
      }
      if (n == -FI_EAGAIN) return text + "no completion";
      EXPECT_EQ(n, ssize_t(sizeof entry));
      EXPECT_EQ(event, uint32_t(FI_AV_COMPLETE));
      EXPECT_EQ(entry.fid, &v.c->fid);
      EXPECT_EQ(entry.context, context);
      return text + std::to_string(entry.data);
    }
  }

  Vector v{FI_SOCKADDR_IN, attr()};
  fid_fabric fabric{};
  std::atomic<size_t> children{0};
  Eq *eq = nullptr;
};

TEST(AvAsync, CompletesInTheEventQueue) {
  Asynchronous a;
  sockaddr_in peers[] = {v4(1), v4(2), v4(3)};
  fi_addr_t out[3];
  int one, two;
  EXPECT_EQ(fi_av_insert(a.v.c, peers, 3, out, 0, &one), 0);
  peers[0].sin_port = 0;
  peers[2].sin_family = 0;
  EXPECT_EQ(fi_av_insert(a.v.c, peers, 3, out, FI_MORE, &two), 0);
  EXPECT_THAT(out, ElementsAre(kNotAvailable, 3, kNotAvailable));
  EXPECT_EQ(a.events(&one), "3");
  EXPECT_EQ(a.events(&two),
            "0:" + std::to_string(FI_EADDRNOTAVAIL) + " 2:" + std::to_string(FI_EINVAL) + " 1");
  EXPECT_EQ(fi_av_insert(a.v.c, nullptr, 0, nullptr, 0, &one), 0);
  EXPECT_EQ(a.events(&one), "0");
  EXPECT_EQ(fi_av_insertsvc(a.v.c, "127.0.0.1", "5", out, 0, &two), 0);
  EXPECT_EQ(a.events(&two), "1");
  EXPECT_EQ(fi_av_insertsvc(a.v.c, "127.0.0.1", "70000", out, 0, &two), 0);
  EXPECT_EQ(a.events(&two), "0:" + std::to_string(FI_EINVAL) + " 0") << "even if all fail";
  EXPECT_EQ(out[0], kNotAvailable);
  EXPECT_EQ(fi_av_insertsym(a.v.c, "10.0.0.7", 2, "5", 1, nullptr, 0, &one), 0);
  EXPECT_EQ(a.events(&one), "2");
  EXPECT_EQ(fi_av_insert(a.v.c, peers, 1, out, FI_SYNC_ERR, &one), -FI_EBADFLAGS);
  EXPECT_EQ(a.events(&one), "no completion") << "a call that fails has no completion";
}

TEST(AvAsync, NeedsAnEventQueue) {
  Asynchronous a(false);
  const sockaddr_in one = v4(1);
  fi_addr_t out;
  EXPECT_EQ(fi_av_insert(a.v.c, &one, 1, &out, 0, nullptr), -FI_ENOEQ);
  EXPECT_EQ(fi_av_insertsvc(a.v.c, "10.0.0.1", "5", &out, 0, nullptr), -FI_ENOEQ);
  EXPECT_EQ(fi_av_insertsym(a.v.c, "10.0.0.1", 1, "5", 1, &out, 0, nullptr), -FI_ENOEQ);
  EXPECT_EQ(fi_av_bind(a.v.c, a.eq->base(), FI_EVENT), -FI_EBADFLAGS);
  EXPECT_EQ(fi_av_bind(a.v.c, &a.v.c->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_bind(a.v.c, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_av_bind(a.v.c, a.eq->base(), 0), 0);
  EXPECT_EQ(fi_av_bind(a.v.c, a.eq->base(), 0), -FI_EBUSY);
  EXPECT_EQ(fi_close(a.eq->base()), -FI_EBUSY);
  EXPECT_EQ(fi_av_insert(a.v.c, &one, 1, &out, 0, nullptr), 0);
  EXPECT_EQ(a.events(nullptr), "1");
}

TEST(AvThreads, ManyThreadsInsertAndRemove) {
  Vector v;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&v, t] {
      for (uint32_t i = 0; i < 500; ++i) {
        const sockaddr_in address = v4(t * 1000 + i + 1);
        fi_addr_t out;
        ASSERT_EQ(fi_av_insert(v.c, &address, 1, &out, 0, nullptr), 1);
        ASSERT_EQ(v.find(address), out);
        if (i % 2 == 0) {
          ASSERT_EQ(fi_av_remove(v.c, &out, 1, 0), 0);
        }
      }
    });
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(v.av->count(), 4u * 250);
  EXPECT_LE(v.av->capacity(), 4u * 250 + 4);
}

}  // namespace
}  // namespace weft::sdk
