// SPDX-License-Identifier: BSD-2-Clause
// Remote memory access between two libfabrics, with the library that the dynamic linker finds.
//
//   interop_access target               # prints address, key and base; runs until its input ends
//   interop_access ADDRESS KEY BASE     # writes, reads and changes the target's memory, and checks
//                                       # all of it
//
// For interop_test.sh, which gives either side stock's library. INTEROP_PORT in the environment is
// this side's port. Nothing is closed at the end, so a peer learns of it only by later packets.
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZE (256 << 10)

static struct fi_info *info;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_mr *mr;
static struct fid_domain *domain;
static uint8_t memory[SIZE];
static int done;

static void must(const char *what, long rc) {
  if (rc >= 0) return;
  printf("%s: %s\n", what, fi_strerror((int)-rc));
  exit(1);
}

static void check(const char *what, int good) {
  if (good) return;
  printf("%s: wrong\n", what);
  exit(1);
}

static void progress(void) {
  struct fi_cq_tagged_entry entry;
  const ssize_t n = fi_cq_read(cq, &entry, 1);
  if (n == 1) {
    ++done;
  } else if (n == -FI_EAVAIL) {
    struct fi_cq_err_entry err = {0};
    fi_cq_readerr(cq, &err, 0);
    printf("an operation failed: %s\n", fi_strerror(err.err));
    exit(1);
  } else if (n != -FI_EAGAIN) {
    must("fi_cq_read", n);
  }
}

// Starts the operation, retries while there is no room, and waits for its completion.
#define DO(what, call)                                      \
  do {                                                      \
    const time_t end = time(NULL) + 40;                     \
    const int before = done;                                \
    ssize_t rc;                                             \
    while ((rc = (call)) == -FI_EAGAIN) progress();         \
    must(what, rc);                                         \
    while (done == before) {                                \
      progress();                                           \
      check(what ": 40 seconds went by", time(NULL) < end); \
    }                                                       \
  } while (0)

static void start(void) {
  struct fi_info *hints = fi_allocinfo();
  hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup("udp;ofi_rxd");
  must("fi_getinfo",
       fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", getenv("INTEROP_PORT"), FI_SOURCE, hints, &info));
  struct fid_fabric *fabric;
  must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
  must("fi_domain", fi_domain(fabric, info, &domain, NULL));
  struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
  must("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
  struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .size = 128};
  must("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
  must("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
  must("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
  must("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
  must("fi_enable", fi_enable(ep));
  must("fi_mr_reg",
       fi_mr_reg(domain, memory, SIZE, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0,
                 0xc0de, 0, &mr, NULL));
}

static int target(void) {
  uint8_t name[64];
  size_t length = sizeof name;
  must("fi_getname", fi_getname(&ep->fid, name, &length));
  for (size_t i = 0; i < length; ++i) printf("%02x", name[i]);
  const uint64_t base =
      info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC) ? (uintptr_t)memory : 0;
  printf(" %llx %llx\n", (unsigned long long)fi_mr_key(mr), (unsigned long long)base);
  fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  while (poll(&input, 1, 0) == 0) progress();
  return 0;
}

static int initiator(char **arguments) {
  uint8_t name[64] = {0};
  for (size_t i = 0; i < sizeof name && arguments[0][2 * i] != '\0'; ++i) {
    const char digits[3] = {arguments[0][2 * i], arguments[0][2 * i + 1], '\0'};
    name[i] = (uint8_t)strtoul(digits, NULL, 16);
  }
  const uint64_t key = strtoull(arguments[1], NULL, 16), base = strtoull(arguments[2], NULL, 16);
  fi_addr_t peer;
  check("fi_av_insert", fi_av_insert(av, name, 1, &peer, 0, NULL) == 1);
  void *desc = fi_mr_desc(mr);

  // Sizes around one packet, and of several windows.
  static uint8_t out[SIZE / 2], in[SIZE / 2];
  static const size_t sizes[] = {1, 16, 1432, 1433, 1440, 1441, 5000, 20000, SIZE / 2};
  for (size_t i = 0; i < sizeof out; ++i) out[i] = (uint8_t)(i * 7 + (i >> 8));
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    const size_t n = sizes[s];
    for (size_t i = 0; i < n; ++i) out[i] ^= (uint8_t)(s + 1);
    DO("fi_write", fi_write(ep, out, n, desc, peer, base + 1000, key, NULL));
    memset(in, 0, n);
    DO("fi_read", fi_read(ep, in, n, desc, peer, base + 1000, key, NULL));
    check("what was written and read", memcmp(in, out, n) == 0);
  }

  // Two vectors, out of order in the target.
  const struct iovec iov = {out, 6000}, iov2 = {in, 6000};
  struct fi_rma_iov rma[2] = {{base + 50000, 2500, key}, {base + 20000, 3500, key}};
  struct fi_msg_rma msg = {.msg_iov = &iov,
                           .desc = &desc,
                           .iov_count = 1,
                           .addr = peer,
                           .rma_iov = rma,
                           .rma_iov_count = 2};
  DO("fi_writemsg", fi_writemsg(ep, &msg, 0));
  DO("fi_writedata", fi_writedata(ep, out, 64, desc, 0x1234, peer, base, key, NULL));
  memset(in, 0, sizeof in);
  DO("fi_read", fi_read(ep, in, 2500, desc, peer, base + 50000, key, NULL));
  DO("fi_read", fi_read(ep, in + 2500, 3500, desc, peer, base + 20000, key, NULL));
  check("two vectors, written", memcmp(in, out, 6000) == 0);
  memset(in, 0, sizeof in);
  msg.msg_iov = &iov2;
  DO("fi_readmsg", fi_readmsg(ep, &msg, 0));
  check("two vectors, read", memcmp(in, out, 6000) == 0);

  // Four words at 512.
  uint64_t words[4] = {1, 2, 3, 4}, ones[4] = {1, 1, 1, 1}, result[4], operand = 99, compare = 3;
  DO("fi_write", fi_write(ep, words, sizeof words, desc, peer, base + 512, key, NULL));
  DO("fi_atomic", fi_atomic(ep, ones, 4, desc, peer, base + 512, key, FI_UINT64, FI_SUM, NULL));
  DO("fi_fetch_atomic", fi_fetch_atomic(ep, ones, 4, desc, result, desc, peer, base + 512, key,
                                        FI_UINT64, FI_SUM, NULL));
  check("fetched", result[0] == 2 && result[1] == 3 && result[2] == 4 && result[3] == 5);
  DO("fi_compare_atomic", fi_compare_atomic(ep, &operand, 1, desc, &compare, desc, result, desc,
                                            peer, base + 512, key, FI_UINT64, FI_CSWAP, NULL));
  check("compared", result[0] == 3);
  DO("fi_fetch_atomic", fi_fetch_atomic(ep, NULL, 4, NULL, result, desc, peer, base + 512, key,
                                        FI_UINT64, FI_ATOMIC_READ, NULL));
  check("read by an atomic", result[0] == 99 && result[1] == 4 && result[2] == 5 && result[3] == 6);

  // The largest atomic.
  static uint64_t many[1024], previous[1024];
  size_t most = 0;
  must("fi_fetch_atomicvalid", fi_fetch_atomicvalid(ep, FI_UINT64, FI_SUM, &most));
  check("atomics take more than one word", most > 1 && most <= 1024);
  for (size_t i = 0; i < most; ++i) many[i] = i;
  DO("fi_write", fi_write(ep, many, most * 8, desc, peer, base + 1024, key, NULL));
  DO("fi_atomic", fi_atomic(ep, many, most, desc, peer, base + 1024, key, FI_UINT64, FI_SUM, NULL));
  DO("fi_fetch_atomic", fi_fetch_atomic(ep, many, most, desc, previous, desc, peer, base + 1024,
                                        key, FI_UINT64, FI_SUM, NULL));
  for (size_t i = 0; i < most; ++i) check("the largest atomics", previous[i] == 2 * i);
  puts("all right");
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 4) return 2;
  start();
  return argc == 2 ? target() : initiator(argv + 1);
}
