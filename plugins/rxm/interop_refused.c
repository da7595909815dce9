// SPDX-License-Identifier: BSD-2-Clause
// What becomes of messages behind an access to memory that the target refuses, between two
// libfabrics, each with the library that the dynamic linker finds.
//
//   interop_refused STACK target             # prints address and key; receives until its input ends,
//                                            # then prints how many messages came
//   interop_refused STACK ADDRESS KEY KIND   # KIND: write, delivery or read, with a wrong key, and
//                                            # messages before and behind it; prints how many of them
//                                            # failed, and whether the access did
//
// For interop_test.sh. A stock initiator hears nothing of a refused write without a level: it looks
// for its error a while only.
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 9
#define LOOKS 20000  // at the queue, after the last thing that came

static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fi_info *info;
static char memory[4096], in[MESSAGES][64], out[64];
static struct fi_context contexts[MESSAGES + 1];  // the last one is the access's
static int completed, failed_messages, failed_access;

static void must(const char *what, long rc) {
  if (rc >= 0) return;
  printf("%s: %s\n", what, fi_strerror((int)-rc));
  exit(1);
}

static void open_endpoint(const char *stack) {
  struct fi_info *hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup(stack);
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_TAGGED | FI_RMA;
  hints->mode = FI_CONTEXT;
  hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  must("fi_getinfo", fi_getinfo(FI_VERSION(1, 14), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
  struct fid_fabric *fabric;
  must("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
  must("fi_domain", fi_domain(fabric, info, &domain, NULL));
  struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
  must("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
  struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
  must("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
  must("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
  must("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
  must("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
  must("fi_enable", fi_enable(ep));
}

// 1: something came.
static int look(void) {
  struct fi_cq_tagged_entry entry;
  const ssize_t n = fi_cq_read(cq, &entry, 1);
  if (n == 1) ++completed;
  if (n != -FI_EAVAIL) return n == 1;
  struct fi_cq_err_entry error = {0};
  fi_cq_readerr(cq, &error, 0);
  if (error.flags & FI_RMA)
    failed_access = 1;
  else
    ++failed_messages;
  return 1;
}

static int target(void) {
  struct fid_mr *mr;
  must("fi_mr_reg", fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7,
                              0, &mr, NULL));
  for (int i = 0; i < MESSAGES; ++i)
    must("fi_trecv", fi_trecv(ep, in[i], sizeof in[i], NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[i]));
  unsigned char name[256];
  size_t length = sizeof name;
  must("fi_getname", fi_getname(&ep->fid, name, &length));
  for (size_t i = 0; i < length; ++i) printf("%02x", name[i]);
  printf(" %llu\n", (unsigned long long)fi_mr_key(mr));
  fflush(stdout);
  struct pollfd input = {0, POLLIN, 0};
  while (poll(&input, 1, 0) == 0) look();
  for (int left = LOOKS; left > 0; --left)
    if (look()) left = LOOKS;
  printf("%d\n", completed);
  return 0;
}

static ssize_t access_memory(fi_addr_t to, uint64_t key, const char *kind) {
  struct iovec iov = {out, 8};
  struct fi_rma_iov rma = {0, 8, key};
  struct fi_msg_rma message = {.msg_iov = &iov,
                               .iov_count = 1,
                               .addr = to,
                               .rma_iov = &rma,
                               .rma_iov_count = 1,
                               .context = &contexts[MESSAGES]};
  if (strcmp(kind, "read") == 0) return fi_readmsg(ep, &message, FI_COMPLETION);
  const uint64_t level = strcmp(kind, "delivery") == 0 ? FI_DELIVERY_COMPLETE : 0;
  return fi_writemsg(ep, &message, FI_COMPLETION | level);
}

static int initiate(const char *address, uint64_t key, const char *kind) {
  unsigned char name[256];
  for (size_t i = 0; address[2 * i] != '\0' && i < sizeof name; ++i)
    sscanf(address + 2 * i, "%2hhx", &name[i]);
  fi_addr_t to;
  must("fi_av_insert", fi_av_insert(av, name, 1, &to, 0, NULL));
  ssize_t rc;
  for (int i = 0; i < MESSAGES; ++i) {
    while ((rc = fi_tsend(ep, out, sizeof out, NULL, to, 1, &contexts[i])) == -FI_EAGAIN) look();
    must("fi_tsend", rc);
    while (i == 0 && completed == 0) look();  // connected
    if (i != 2) continue;
    while ((rc = access_memory(to, key + 999, kind)) == -FI_EAGAIN) look();
    must("the access", rc);
  }
  for (int left = 50 * LOOKS; left > 0 && !failed_access; --left) look();
  for (int left = LOOKS; left > 0; --left)
    if (look()) left = LOOKS;
  printf("%d %d\n", failed_messages, failed_access);
  return 0;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  open_endpoint(arguments[1]);
  if (count == 3) return target();
  return count == 5 ? initiate(arguments[2], strtoull(arguments[3], NULL, 10), arguments[4]) : 2;
}
