// SPDX-License-Identifier: BSD-2-Clause
//
// weft-av-bench: the cost of an address vector of many peers: bytes of resident memory per peer,
// and seconds to insert, look up and remove them all. It inserts and removes by one call, and looks
// up by a call for each peer. It uses the public C API only, so LD_LIBRARY_PATH decides which
// libfabric is measured; it prints the path of that library.
//
//   weft-av-bench                              a million IPv4 peers on tcp;ofi_rxm
//   weft-av-bench -6 --source -p tcp -n 100000
//
// The program's arrays of addresses and results are touched before the clock starts, and are not
// counted. With --source an endpoint with FI_SOURCE is bound and enabled first: if the vector keeps
// a reverse index for it, it does so from the start.

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::bench {
namespace {

struct Options {
  uint32_t peers = 1'000'000;
  std::string provider = "tcp;ofi_rxm";
  bool ipv6 = false;
  bool source = false;
};

struct CloseFid {
  template <class Fid>
  void operator()(Fid *object) const {
    fi_close(&object->fid);
  }
};
template <class Fid>
using Owned = std::unique_ptr<Fid, CloseFid>;

void check_call(ssize_t rc, const char *call) {
  if (rc != 0)
    throw std::runtime_error(absl::StrCat(call, ": ", fi_strerror(static_cast<int>(-rc))));
}

double time_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double resident_bytes() {
  FILE *file = fopen("/proc/self/statm", "r");
  unsigned long pages = 0;
  if (file == nullptr || fscanf(file, "%*u %lu", &pages) != 1)
    throw std::runtime_error("cannot read /proc/self/statm");
  fclose(file);
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::string loaded_library() {
  Dl_info where;
  void *symbol = dlsym(RTLD_DEFAULT, "fi_getinfo");
  return symbol != nullptr && dladdr(symbol, &where) != 0 ? where.dli_fname : "?";
}

// 10.0.0.1, 10.0.0.2, ... or 2001:db8::1, ..., all on one port.
std::vector<char> all_addresses(const Options &options) {
  std::vector<char> bytes;
  for (uint32_t i = 1; i <= options.peers; ++i) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(7471);
    v4.sin_addr.s_addr = htonl(0x0a000000u + i);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(7471);
    inet_pton(AF_INET6, "2001:db8::", &v6.sin6_addr);
    const uint32_t low = htonl(i);
    memcpy(v6.sin6_addr.s6_addr + 12, &low, sizeof low);
    const char *address = reinterpret_cast<const char *>(&v4);
    if (options.ipv6) address = reinterpret_cast<const char *>(&v6);
    bytes.insert(bytes.end(), address, address + (options.ipv6 ? sizeof v6 : sizeof v4));
  }
  return bytes;
}

struct SourceEndpoint {
  Owned<fid_cq> cq;
  Owned<fid_ep> ep;
};

// An enabled endpoint, bound to the vector. It reports sources, because `info` has FI_SOURCE.
SourceEndpoint enable_source_endpoint(fid_domain *domain, fi_info *info, fid_av *av) {
  SourceEndpoint opened;
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_MSG;
  fid_cq *cq = nullptr;
  check_call(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
  opened.cq.reset(cq);
  fid_ep *ep = nullptr;
  check_call(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
  opened.ep.reset(ep);
  check_call(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
  check_call(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the AV");
  check_call(fi_enable(ep), "fi_enable");
  return opened;
}

int run(const Options &options) {
  std::unique_ptr<fi_info, void (*)(fi_info *)> hints(fi_allocinfo(), fi_freeinfo);
  if (hints == nullptr) throw std::runtime_error("fi_allocinfo: no memory");
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | (options.source ? FI_SOURCE : 0);
  hints->mode = FI_CONTEXT;
  hints->addr_format = options.ipv6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->fabric_attr->prov_name = strdup(options.provider.c_str());
  fi_info *found = nullptr;
  const int rc = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &found);
  if (rc != 0)
    throw std::runtime_error(absl::StrCat("fi_getinfo: no FI_EP_RDM endpoint of provider ",
                                          options.provider, " in ", loaded_library(), ": ",
                                          fi_strerror(-rc)));
  const std::unique_ptr<fi_info, void (*)(fi_info *)> info(found, fi_freeinfo);

  fid_fabric *fabric = nullptr;
  check_call(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
  const Owned<fid_fabric> own_fabric(fabric);
  fid_domain *domain = nullptr;
  check_call(fi_domain(fabric, info.get(), &domain, nullptr), "fi_domain");
  const Owned<fid_domain> own_domain(domain);

  // The program's own arrays are allocated before the first look at its memory.
  const std::vector<char> addresses = all_addresses(options);
  std::vector<fi_addr_t> results(options.peers, FI_ADDR_NOTAVAIL);

  fi_av_attr attr{};
  attr.type = FI_AV_TABLE;
  attr.count = options.peers;
  const double start = resident_bytes();
  fid_av *av = nullptr;
  check_call(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open");
  const Owned<fid_av> own_av(av);
  const SourceEndpoint endpoint =
      options.source ? enable_source_endpoint(domain, info.get(), av) : SourceEndpoint();

  const double before = resident_bytes();
  double clock = time_now();
  const int inserted =
      fi_av_insert(av, addresses.data(), options.peers, results.data(), 0, nullptr);
  const double insert_seconds = time_now() - clock;
  const double after = resident_bytes();
  if (inserted != static_cast<int>(options.peers))
    throw std::runtime_error(absl::StrCat("fi_av_insert returned ", inserted));

  const size_t size = options.ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  clock = time_now();
  for (uint32_t i = 0; i < options.peers; ++i) {
    sockaddr_in6 there{};
    size_t length = sizeof there;
    check_call(fi_av_lookup(av, results[i], &there, &length), "fi_av_lookup");
    if (length != size || memcmp(&there, addresses.data() + i * size, size) != 0)
      throw std::runtime_error(absl::StrCat("fi_av_lookup: entry ", i, " is another peer"));
  }
  const double lookup_seconds = time_now() - clock;
  clock = time_now();
  check_call(fi_av_remove(av, results.data(), options.peers, 0), "fi_av_remove");
  const double remove_seconds = time_now() - clock;

  absl::PrintF("%s, %s (%s)\n", info->fabric_attr->prov_name, options.ipv6 ? "IPv6" : "IPv4",
               loaded_library());
  absl::PrintF("%10s %12s %12s %10s %10s %10s\n", "peers", "bytes/peer", "with open", "insert s",
               "lookup s", "remove s");
  absl::PrintF("%10u %12.1f %12.1f %10.3f %10.3f %10.3f\n", options.peers,
               (after - before) / options.peers, (after - start) / options.peers, insert_seconds,
               lookup_seconds, remove_seconds);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  try {
    weft::bench::Options options;
    CLI::App app("What an address vector of many peers costs, in bytes and seconds.");
    app.add_option("-n,--peers", options.peers, "how many")
        ->check(CLI::Range(1u, 16'000'000u))
        ->capture_default_str();
    app.add_option("-p,--provider", options.provider, "fi_fabric_attr.prov_name")
        ->capture_default_str();
    app.add_flag("-6,--ipv6", options.ipv6, "IPv6 peers");
    app.add_flag("--source", options.source, "with an endpoint that reports sources (FI_SOURCE)");
    CLI11_PARSE(app, argc, argv);
    return weft::bench::run(options);
  } catch (const std::exception &error) {
    absl::FPrintF(stderr, "weft-av-bench: %s\n", error.what());
    return 1;
  }
}
