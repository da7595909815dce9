// SPDX-License-Identifier: BSD-2-Clause
// exchange STACK [COUNTERS]: two unconnected endpoints (FI_EP_RDM) of the stack send messages to
// each other. With COUNTERS, the name of a set of counters (weft_counters_ops) that an endpoint
// gives by fi_open_ops, the first counter must have seen the sends.
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <weft/plugin.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kRounds = 100;
constexpr std::chrono::seconds kLimit{60};  // of a completion: far more than it needs

// Ends the test where a call failed.
void check(const char *call, long rc) {
  if (rc >= 0) return;
  std::fprintf(stderr, "%s: %s\n", call, fi_strerror(int(-rc)));
  std::exit(1);
}

struct Side {
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  fid_cq *cq = nullptr;
  fid_av *av = nullptr;
  fid_ep *ep = nullptr;
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  fi_cq_msg_entry last{};  // the last completion
  int done = 0;            // how many there were

  void open(fi_info *info) {
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_MSG;
    fi_av_attr av_attr{};
    check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, nullptr));
    check("fi_domain", fi_domain(fabric, info, &domain, nullptr));
    check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr));
    check("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr));
    check("fi_endpoint", fi_endpoint(domain, info, &ep, nullptr));
    check("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    check("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
    check("fi_enable", fi_enable(ep));
  }
  void know(const fi_info *info, const Side &other) {
    char address[256];
    size_t length = sizeof address;
    check("fi_getname", fi_getname(&other.ep->fid, address, &length));
    // An array of addresses in text is one of pointers (fi_av.3).
    const char *text = address;
    const void *const one =
        info->addr_format == FI_ADDR_STR ? static_cast<const void *>(&text) : address;
    check("fi_av_insert", fi_av_insert(av, one, 1, &peer, 0, nullptr) == 1 ? 0 : -FI_EINVAL);
  }
  void progress() {
    const ssize_t n = fi_cq_read(cq, &last, 1);
    if (n == 1) ++done;
    if (n != 1 && n != -FI_EAGAIN) check("fi_cq_read", n);
  }
  void close() {
    for (fid *object : {&ep->fid, &av->fid, &cq->fid, &domain->fid, &fabric->fid})
      check("fi_close", fi_close(object));
  }
};

// A message of `size` bytes from one to the other.
void transfer(Side &from, Side &to, size_t size, unsigned char mark) {
  static unsigned char out[4096], in[4096];
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<unsigned char>(mark + i * 31 + (i >> 8));
  std::memset(in, 0, size);
  const auto end = std::chrono::steady_clock::now() + kLimit;
  from.done = to.done = 0;
  check("fi_recv", fi_recv(to.ep, in, size, nullptr, FI_ADDR_UNSPEC, in));
  ssize_t sent;
  while ((sent = fi_send(from.ep, out, size, nullptr, from.peer, out)) == -FI_EAGAIN) {
    from.progress();
    to.progress();
    if (std::chrono::steady_clock::now() > end) break;
  }
  check("fi_send", sent);
  while (from.done < 1 || to.done < 1) {
    from.progress();
    to.progress();
    if (std::chrono::steady_clock::now() > end) check("the completions", -FI_ETIMEDOUT);
  }
  if (from.last.op_context != out || to.last.op_context != in || to.last.len != size)
    check("what the completions say", -FI_EIO);
  if (std::memcmp(in, out, size) != 0) check("the bytes that arrived", -FI_EIO);
}

void read_counters(Side &side, const char *name) {
  weft_counters_ops *ops = nullptr;
  check("fi_open_ops",
        fi_open_ops(&side.ep->fid, name, 0, reinterpret_cast<void **>(&ops), nullptr));
  weft_counter counter{};
  if (ops->read(&side.ep->fid, &counter, 1) < 1 || counter.value < kRounds)
    check("the counter", -FI_ENODATA);
  std::printf("%s: %llu\n", counter.name, static_cast<unsigned long long>(counter.value));
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: exchange STACK [COUNTERS]\n");
    return 2;
  }
  fi_info *hints = fi_allocinfo(), *info = nullptr;
  if (hints == nullptr) check("fi_allocinfo", -FI_ENOMEM);
  hints->caps = FI_MSG;
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = strdup(argv[1]);
  check("fi_getinfo", fi_getinfo(FI_VERSION(2, 0), nullptr, nullptr, 0, hints, &info));
  Side a, b;
  a.open(info);
  b.open(info);
  a.know(info, b);
  b.know(info, a);
  for (int i = 0; i < kRounds; ++i) {
    transfer(a, b, 1 + size_t(i) * 40, static_cast<unsigned char>(i));
    transfer(b, a, 1 + size_t(i) * 40, static_cast<unsigned char>(i + 1));
  }
  if (argc > 2) read_counters(a, argv[2]);
  a.close();
  b.close();
  fi_freeinfo(info);
  fi_freeinfo(hints);
  std::printf("%s: %d messages each way\n", argv[1], kRounds);
}
