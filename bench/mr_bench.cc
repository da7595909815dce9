// SPDX-License-Identifier: BSD-2-Clause
// weft-mr-bench: what it costs to register memory, with and without verbs' cache of registrations.
//
//   weft-mr-bench [PROVIDER [ROUNDS]]       verbs, 21
//
// Each mode has a process of its own (FI_VERBS_MR_CACHE). "same" registers and closes the same
// memory over and over; "new" maps, fills, registers, closes and unmaps memory, so the cache finds
// nothing and is told of each unmapping; "map" is that without the registration. The figure is the
// median of all rounds, in nanoseconds.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void must(ssize_t rc, const char *what) {
  if (rc >= 0) return;
  std::fprintf(stderr, "weft-mr-bench: %s: %s\n", what, fi_strerror(int(-rc)));
  std::exit(1);
}

double now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

char *map(size_t size) {
  void *const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(at != MAP_FAILED ? 0 : -FI_ENOMEM, "mmap");
  std::memset(at, 1, size);
  return static_cast<char *>(at);
}

void register_once(fid_domain *domain, void *memory, size_t size) {
  fid_mr *mr = nullptr;
  must(fi_mr_reg(domain, memory, size, FI_SEND | FI_RECV | FI_REMOTE_READ, 0, 0, 0, &mr, nullptr),
       "fi_mr_reg");
  must(fi_close(&mr->fid), "fi_close");
}

template <class Once>
double median(int rounds, int calls, Once once) {
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) {
    const double start = now_ns();
    for (int i = 0; i < calls; ++i) once();
    all.push_back((now_ns() - start) / calls);
  }
  std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
  return all[size_t(rounds / 2)];
}

int run(const char *mode, const char *provider, int rounds) {
  fi_info *const hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup(provider);
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->mode = FI_RX_CQ_DATA | FI_MSG_PREFIX | FI_CONTEXT | FI_CONTEXT2;
  fi_info *info = nullptr;
  must(fi_getinfo(FI_VERSION(2, 0), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
  fid_fabric *fabric = nullptr;
  fid_domain *domain = nullptr;
  must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
  must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
  for (size_t size = 4096; size <= size_t(1) << 20; size *= 4) {
    char *const memory = map(size);
    register_once(domain, memory, size);
    const double same = median(rounds, 1000, [&] { register_once(domain, memory, size); });
    munmap(memory, size);
    const double fresh = median(rounds, 50, [&] {
      char *const other = map(size);
      register_once(domain, other, size);
      munmap(other, size);
    });
    const double mapping = median(rounds, 50, [&] { munmap(map(size), size); });
    std::printf("%-8s %8zu B   same %9.0f   new %9.0f   map %9.0f\n", mode, size, same, fresh,
                mapping);
  }
  must(fi_close(&domain->fid), "fi_close");
  must(fi_close(&fabric->fid), "fi_close");
  fi_freeinfo(info);
  fi_freeinfo(hints);
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  const char *const provider = argc > 1 ? argv[1] : "verbs";
  const int rounds = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 21;
  for (const char *cache : {"0", "1"}) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      setenv("FI_VERBS_MR_CACHE", cache, 1);
      std::exit(run(*cache == '1' ? "cache" : "none", provider, rounds));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
