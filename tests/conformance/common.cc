// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/common.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "tests/conformance/device_memory.h"
#include "tests/conformance/process.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance {
namespace {

// Whether a library of this process has the symbol: so a sanitizer is known by that of its runtime.
// A macro of the compiler would not do, because this file is compiled without a sanitizer.
bool has_symbol(const char *name) {
  return dlsym(RTLD_DEFAULT, name) != nullptr;
}

}  // namespace

bool is_sanitized() {
  static const bool found = has_symbol("__asan_init") || has_symbol("__tsan_init");
  return found;
}

std::chrono::milliseconds patience() {
  const char *text = std::getenv("WEFT_TEST_PATIENCE_MS");
  if (text != nullptr) return std::chrono::milliseconds(std::max(1, std::atoi(text)));
  return (is_sanitized() ? 3 : 1) * kPatience;  // as ctest's limits
}

std::string stack() {
  const char *named = std::getenv("WEFT_TEST_STACK");
  return named != nullptr && *named != '\0' ? named : "tcp";
}

const char *test_node() {
  const char *named = std::getenv("WEFT_TEST_NODE");
  return named != nullptr && *named != '\0' ? named : "127.0.0.1";
}

uint32_t test_addr_format() {
  const char *named = std::getenv("WEFT_TEST_ADDR_FORMAT");
  if (named == nullptr || *named == '\0') return FI_FORMAT_UNSPEC;
  for (uint32_t format = 0; format < 64; ++format) {
    char text[256];
    if (std::string_view(named) == fi_tostr_r(text, sizeof text, &format, FI_TYPE_ADDR_FORMAT))
      return format;
  }
  throw std::runtime_error(std::string("WEFT_TEST_ADDR_FORMAT=") + named +
                           ": libfabric has no such address format");
}

std::vector<std::string> test_vector_keys() {
  std::vector<std::string> keys;
  const char *named = std::getenv("WEFT_TEST_VECTOR_KEYS");
  if (named == nullptr || *named == '\0') return keys;
  keys.emplace_back();
  for (const char *at = named; *at != '\0';) {
    unsigned byte = 0;
    int length = 0;
    if (*at == ',') {
      keys.emplace_back();
      ++at;
    } else if (std::sscanf(at, "%2x%n", &byte, &length) == 1 && length == 2) {
      keys.back().push_back(char(byte));
      at += length;
    } else {
      throw std::runtime_error(std::string("WEFT_TEST_VECTOR_KEYS=") + named +
                               ": not in hexadecimal");
    }
  }
  return keys;
}

bool has_ipv4_addresses() {
  return std::string_view(test_node()).starts_with("127.") &&
         (test_addr_format() == FI_FORMAT_UNSPEC || test_addr_format() == FI_SOCKADDR_IN);
}

namespace {

Demands find_demands(enum fi_ep_type type) {
  constexpr int kKeys = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  constexpr uint64_t kModes = FI_RX_CQ_DATA | FI_MSG_PREFIX;
  // With as little as possible.
  constexpr Demands kAbilities[] = {
      {}, {0, kKeys}, {kModes, kKeys | FI_MR_LOCAL}, {0, FI_MR_ENDPOINT | FI_MR_ALLOCATED}};
  for (const uint64_t caps : {uint64_t(FI_MSG | FI_RMA), uint64_t(FI_MSG)}) {
    for (const Demands &able : kAbilities) {
      const Info hints(fi_allocinfo());
      if (!hints) throw std::bad_alloc();
      hints->caps = caps;
      hints->mode = able.mode;
      hints->addr_format = test_addr_format();
      hints->ep_attr->type = type;
      hints->fabric_attr->prov_name = strdup(stack().c_str());
      hints->domain_attr->mr_mode = able.mr_mode;
      Info list;
      if (try_info(list, test_node(), nullptr, FI_SOURCE, hints.get()) != 0) continue;
      for (const fi_info *info = list.get(); info != nullptr; info = info->next) {
        if (info->fabric_attr->prov_name != stack()) continue;
        return {info->mode & able.mode, info->domain_attr->mr_mode & able.mr_mode};
      }
    }
  }
  return {};
}

}  // namespace

const Demands &demands(enum fi_ep_type type) {
  static std::mutex lock;
  static std::map<int, Demands> known;
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = known.find(type);
  return found != known.end() ? found->second : known[type] = find_demands(type);
}

bool is_matched_by_a_nic(enum fi_ep_type type) {
  return demands(type).mr_mode & FI_MR_ENDPOINT;
}

bool is_of_a_device(enum fi_ep_type type) {
  return demands(type).mr_mode & FI_MR_LOCAL;
}

bool is_over_a_device(enum fi_ep_type type) {
  return is_of_a_device(type) || stack().starts_with("verbs;ofi_rxm");
}

std::string error_text(ssize_t rc) {
  return std::to_string(rc) + " (" + fi_strerror(int(rc < 0 ? -rc : rc)) + ")";
}

void must(ssize_t rc, const char *file, int line) {
  static const char *const pause = std::getenv("WEFT_TEST_PAUSE_MS");
  if (pause != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(pause)));
  if (rc < 0)
    throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " +
                             error_text(rc));
}

int Deadline::left_ms() const {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(at_ - std::chrono::steady_clock::now())
          .count();
  return int(std::clamp<long long>(left, 0, INT_MAX));
}

// ---- what is asked for ----

Info make_hints(const Options &options) {
  Info hints(fi_allocinfo());
  if (!hints) throw std::bad_alloc();
  const Demands &demanded = demands(options.type);
  hints->caps = options.caps;
  hints->mode = options.mode | demanded.mode;
  hints->addr_format = options.addr_format;
  hints->ep_attr->type = options.type;
  hints->ep_attr->max_msg_size = options.max_msg_size;
  hints->ep_attr->protocol = options.protocol;
  hints->fabric_attr->prov_name = strdup(stack().c_str());
  if (!options.domain.empty()) hints->domain_attr->name = strdup(options.domain.c_str());
  hints->domain_attr->mr_mode = options.mr_mode | demanded.mr_mode;
  hints->domain_attr->control_progress = options.progress;
  hints->domain_attr->data_progress = options.progress;
  hints->domain_attr->threading = options.threading;
  hints->domain_attr->resource_mgmt = options.resource_mgmt;
  hints->domain_attr->av_type = options.av_type;
  hints->tx_attr->size = options.tx_size;
  hints->tx_attr->inject_size = options.inject_size;
  hints->rx_attr->size = options.rx_size;
  hints->tx_attr->op_flags = options.tx_op_flags;
  hints->tx_attr->tclass = options.tclass;
  hints->domain_attr->tclass = options.domain_tclass;
  hints->rx_attr->op_flags = options.rx_op_flags;
  hints->tx_attr->msg_order = hints->rx_attr->msg_order = options.order;
  // A connected endpoint may be bound to one without having asked.
  if (options.shared_receive && options.type != FI_EP_MSG)
    hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  const auto put_key = [](uint8_t *&member, size_t &size, const std::string &key) {
    if (key.empty()) return;
    member = static_cast<uint8_t *>(std::malloc(key.size()));
    if (member == nullptr) throw std::bad_alloc();
    std::memcpy(member, key.data(), key.size());
    size = key.size();
  };
  put_key(hints->ep_attr->auth_key, hints->ep_attr->auth_key_size, options.auth_key);
  if (!options.vector_keys.empty()) hints->domain_attr->auth_key_size = FI_AV_AUTH_KEY;
  put_key(hints->domain_attr->auth_key, hints->domain_attr->auth_key_size, options.domain_auth_key);
  return hints;
}

Info make_hints(uint64_t caps) {
  return make_hints(Options{.caps = caps});
}

int try_info(Info &out, const char *node, const char *service, uint64_t flags, const fi_info *hints,
             uint32_t api) {
  fi_info *info = nullptr;
  const int rc = fi_getinfo(api, node, service, flags, hints, &info);
  out.reset(rc == 0 ? info : nullptr);
  return rc;
}

Info get_info(const char *node, const char *service, uint64_t flags, const fi_info *hints,
              uint32_t api) {
  Info info;
  must(try_info(info, node, service, flags, hints, api));
  return info;
}

Info find_info(const Options &options, uint64_t flags, uint32_t api) {
  const auto text = [](const std::string &given) {
    return given.empty() ? nullptr : given.c_str();
  };
  Info list;
  const int rc = try_info(list, text(options.node), text(options.service), flags,
                          make_hints(options).get(), api);
  if (rc == -FI_ENODATA) return {};
  must(rc);
  for (const fi_info *info = list.get(); info != nullptr; info = info->next)
    if (info->fabric_attr->prov_name == stack()) return Info(fi_dupinfo(info));
  return {};
}

bool has_text_addresses() {
  return test_addr_format() == FI_ADDR_STR;
}

bool has_host_names() {
  return !std::string_view(test_node()).starts_with("fi_addr_") &&
         test_addr_format() != FI_ADDR_CXI && !has_text_addresses();
}

std::string address_at(const Options &options, unsigned service) {
  if (has_text_addresses()) {
    const std::string text =
        "fi_shm://nobody-" + std::to_string(::getpid()) + "-" + std::to_string(service);
    return {text.c_str(), text.size() + 1};
  }
  if (!has_host_names()) {  // FI_ADDR_IB_UD: the number of the queue pair is behind the GID
    const Info info = get_info(options.node.c_str(), nullptr, 0, make_hints(options).get());
    std::string address(static_cast<const char *>(info->dest_addr), info->dest_addrlen);
    if (info->addr_format == FI_ADDR_CXI) {  // the NIC, and a PID on it
      const uint32_t word = (1000 + service / 500) << 9 | service % 500;
      std::memcpy(address.data(), &word, sizeof word);
      return address;
    }
    const uint32_t queue_pair = service;
    std::memcpy(&address.at(16), &queue_pair, sizeof queue_pair);
    return address;
  }
  const Info info =
      get_info(options.node.c_str(), std::to_string(service).c_str(), 0, make_hints(options).get());
  return {static_cast<const char *>(info->dest_addr), info->dest_addrlen};
}

int insert_addresses(fid_av *av, const std::vector<std::string> &addresses, fi_addr_t *to,
                     uint64_t flags, void *context) {
  std::string bytes;
  std::vector<const char *> texts;
  for (const std::string &address : addresses) {
    bytes += address;
    texts.push_back(address.c_str());
  }
  // No socket address begins so; and where texts are under test, a wrong one is a text, too.
  const bool in_text = has_text_addresses() || bytes.starts_with("fi_");
  const void *what = in_text ? static_cast<const void *>(texts.data()) : bytes.data();
  return fi_av_insert(av, what, addresses.size(), to, flags, context);
}

int insert_address(fid_av *av, const std::string &address, fi_addr_t *to, uint64_t flags,
                   void *context) {
  return insert_addresses(av, {address}, to, flags, context);
}

std::string port_of(const std::string &ip_address) {
  sockaddr_in6 address{};  // the port is at the same place in a sockaddr_in
  std::memcpy(&address, ip_address.data(), std::min(sizeof address, ip_address.size()));
  return std::to_string(ntohs(address.sin6_port));
}

const ::testing::Environment *require_stack(const Options &options) {
  class StackIsThere : public ::testing::Environment {
   public:
    explicit StackIsThere(const Options &options) : options_(options) {}
    void SetUp() override {
      if (is_fresh_process() || find_info(options_)) return;  // or its parent process looked
      std::string what = "fi_getinfo offers no " +
                         std::string(fi_tostr(&options_.type, FI_TYPE_EP_TYPE)) + " endpoint of " +
                         stack();
      if (has_devices_inside()) what += " on the devices of WEFT_TEST_DEVICES";
      if (std::getenv("WEFT_TEST_REQUIRED") != nullptr) {
        FAIL() << what << ", which WEFT_CONFORMANCE_STACKS requires";
      } else {
        GTEST_SKIP() << what << "; it is not among WEFT_CONFORMANCE_STACKS";
      }
    }

   private:
    const Options options_;
  };
  return ::testing::AddGlobalTestEnvironment(new StackIsThere(options));
}

bool have_ipv6_loopback() {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0;
  ::close(fd);
  return bound;
}

std::string caps_text(uint64_t caps) {
  return fi_tostr(&caps, FI_TYPE_CAPS);
}

void covers(const std::string &features) {
  const auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string all = features;
  for (int i = 0; i < test->result()->test_property_count(); ++i) {
    const auto &property = test->result()->GetTestProperty(i);
    if (property.key() != std::string("covers")) continue;
    if ((std::string(property.value()) + ",").find(features + ",") != std::string::npos) return;
    all = std::string(property.value()) + ", " + features;
  }
  ::testing::Test::RecordProperty("covers", all);
}

// ---- completions ----

namespace {

// After fi_cq_read said `n`.
std::optional<Done> taken(fid_cq *cq, ssize_t n, const fi_cq_tagged_entry &entry) {
  if (n == -FI_EAGAIN) return {};
  Done done;
  if (n == 1) {
    done.context = entry.op_context;
    done.flags = entry.flags;
    done.len = entry.len;
    done.buf = entry.buf;
    done.data = entry.data;
    done.tag = entry.tag;
    return done;
  }
  if (n != -FI_EAVAIL) must(n == 0 ? -FI_EOTHER : n);
  fi_cq_err_entry error{};
  char data[256];
  error.src_addr = FI_ADDR_NOTAVAIL;  // before API 1.20 it is left as it is
  error.err_data = data;
  error.err_data_size = sizeof data;
  const ssize_t m = fi_cq_readerr(cq, &error, 0);
  if (m != 1)
    throw std::runtime_error("fi_cq_read says -FI_EAVAIL, fi_cq_readerr " + std::to_string(m));
  done.context = error.op_context;
  done.flags = error.flags;
  done.len = error.len;
  done.buf = error.buf;
  done.data = error.data;
  done.tag = error.tag;
  done.source = error.src_addr;
  done.olen = error.olen;
  done.err = error.err;
  done.prov_errno = error.prov_errno;
  if (error.err_data_size != 0)
    done.err_data.assign(static_cast<const char *>(error.err_data), error.err_data_size);
  return done;
}

}  // namespace

// The formats begin alike, so an entry of the widest has room for those of all.
std::optional<Done> poll_cq(fid_cq *cq) {
  fi_cq_tagged_entry entry{};
  const ssize_t n = fi_cq_read(cq, &entry, 1);
  return taken(cq, n, entry);
}

std::optional<Completion> poll(fid_cq *cq) {
  fi_cq_tagged_entry entry{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  const ssize_t n = fi_cq_readfrom(cq, &entry, 1, &source);
  std::optional<Completion> done = taken(cq, n, entry);
  if (done && done->err == 0) done->source = source;
  return done;
}

// ---- one application ----

void Application::open_fabric(const fi_info *from) {
  info.reset(fi_dupinfo(from));
  info->domain_attr->mr_mode |= options.domain_mr_mode;
  must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
  if (options.type == FI_EP_MSG || options.event_queue)
    must(fi_eq_open(fabric, &options.eq, eq.out(), nullptr));
  must(fi_domain(fabric, info.get(), domain.out(), nullptr));
  serve_device_memory(domain, *info);
}

void Application::open_queues() {
  must(fi_cq_open(domain, &options.tx_cq, tx_cq.out(), nullptr));
  if (!options.one_cq) must(fi_cq_open(domain, &options.rx_cq, rx_cq.out(), options.rx_owner));
  if (!options.shared_receive || srx) return;
  fi_rx_attr attr = *info->rx_attr;
  if (options.srx_owner != nullptr) attr.op_flags |= FI_PEER;
  must(fi_srx_context(domain, &attr, srx.out(), options.srx_owner));
}

void Application::bind_queues() {
  if (eq) must(fi_ep_bind(ep, eq.fid(), 0));
  if (av) must(fi_ep_bind(ep, av.fid(), 0));
  if (options.one_cq) {
    must(fi_ep_bind(ep, tx_cq.fid(), FI_TRANSMIT | FI_RECV | options.tx_cq_flags));
  } else {
    must(fi_ep_bind(ep, tx_cq.fid(), FI_TRANSMIT | options.tx_cq_flags));
    must(fi_ep_bind(ep, rx_cq.fid(), FI_RECV | options.rx_cq_flags));
  }
  if (srx) must(fi_ep_bind(ep, srx.fid(), 0));
}

fid_cntr *Application::count(uint64_t what, fi_cntr_attr attr, void *context) {
  counters.emplace_back();
  must(fi_cntr_open(domain, &attr, counters.back().out(), context));
  if (what != 0) must(fi_ep_bind(ep, counters.back().fid(), what));
  return counters.back();
}

fid_mr *Application::expose(void *buffer, size_t size, uint64_t access, uint64_t key,
                            uint64_t flags) {
  regions.emplace_back();
  must(fi_mr_reg(domain, buffer, size, access, 0, key, flags, regions.back().out(), nullptr));
  if (!holds_regions) enable(regions.back());
  return regions.back();
}

void Application::enable(fid_mr *region) {
  if ((demands(options.type).mr_mode & FI_MR_ENDPOINT) == 0) return;
  must(fi_mr_bind(region, &ep->fid, 0));
  must(fi_mr_enable(region));
}

uint64_t Application::base_of(const void *buffer) const {
  return info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC)
             ? reinterpret_cast<uint64_t>(buffer)
             : 0;
}

uint64_t Application::arriving(uint64_t data) const {
  const size_t size = info->domain_attr->cq_data_size;
  return size < sizeof data ? data & ((UINT64_C(1) << (8 * size)) - 1) : data;
}

void Application::progress() {
  if (tx_cq) fi_cq_read(tx_cq, nullptr, 0);
  if (rx_cq) fi_cq_read(rx_cq, nullptr, 0);
  if (!eq) return;
  uint32_t type;
  char entry[sizeof(fi_eq_cm_entry) + 512];
  fi_eq_read(eq, &type, entry, sizeof entry, FI_PEEK);
}

std::string Application::name() const {
  return address_of(
      [this](void *buffer, size_t *size) { return fi_getname(ep.fid(), buffer, size); });
}

// ---- waits ----

bool Driver::until(const std::function<bool()> &predicate, std::chrono::milliseconds time) {
  // The other end may be another thread or process, and gets the processor from time to time. Not
  // each round: beside busy processes every yield costs milliseconds, and a test has many rounds.
  constexpr int kRoundsPerYield = 32;
  const Deadline deadline(time);
  for (int round = 1;; ++round) {
    if (predicate()) return true;
    if (deadline.passed()) return false;
    progress();
    if (round % kRoundsPerYield == 0) std::this_thread::yield();
  }
}

Completion Driver::wait(fid_cq *cq) {
  std::optional<Completion> done;
  if (!until([&] { return (done = next(cq)).has_value(); }))
    throw std::runtime_error("no completion came");
  return *done;
}

void Driver::wait_count(fid_cntr *counter, uint64_t value) {
  if (!until([&] { return fi_cntr_read(counter) >= value; }))
    throw std::runtime_error("a counter stays at " + std::to_string(fi_cntr_read(counter)) +
                             " below " + std::to_string(value));
}

ssize_t Driver::attempt(const std::function<ssize_t()> &operation) {
  ssize_t rc = 0;
  if (!until([&] { return (rc = operation()) != -FI_EAGAIN; }))
    throw std::runtime_error("-FI_EAGAIN for ever");
  return rc;
}

void Driver::post(const std::function<ssize_t()> &operation) {
  must(attempt(operation));
}

void Driver::settle() {
  // Loopback delivers within the sender's system call, so what was sent is there; a few rounds let
  // all act on it and answer.
  for (int i = 0; i < 100; ++i) progress();
}

// ---- other things ----

std::vector<uint8_t> pattern(size_t size, unsigned seed) {
  std::vector<uint8_t> bytes(size);
  uint32_t x = seed * 2654435761u + 1;
  for (size_t i = 0; i < size; ++i) {
    if (i % 4 == 0) {
      x ^= x << 13;
      x ^= x >> 17;
      x ^= x << 5;
    }
    bytes[i] = uint8_t(x >> (8 * (i % 4)));
  }
  return bytes;
}

uint64_t tag_bits(const fi_info &info) {
  uint64_t bits = ~uint64_t{0};
  while (bits != 0 && (info.ep_attr->mem_tag_format & (bits ^ bits >> 1)) == 0) bits >>= 1;
  return bits;
}

std::vector<iovec> cut(std::vector<uint8_t> &bytes, size_t parts) {
  std::vector<iovec> iov;
  for (size_t i = 0, at = 0; i < parts; ++i) {
    const size_t end = bytes.size() * (i + 1) / parts;
    iov.push_back({bytes.data() + at, end - at});
    at = end;
  }
  return iov;
}

void post_multi(fid_ep *ep, std::vector<uint8_t> &buffer) {
  const iovec iov{buffer.data(), buffer.size()};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  message.context = &buffer;
  must(fi_recvmsg(ep, &message, FI_MULTI_RECV));
}

ssize_t receives_left(fid_ep *ep) {
  return ep->ops->rx_size_left(ep);
}

namespace {

struct ThreadTime {
  double ran = 0, wanted = 0;  // ns on a processor, and ns in which it could run and got none
};

// Of each thread of this process; empty where the kernel does not say
// (/proc/PID/task/TID/schedstat).
std::map<std::string, ThreadTime> thread_times() {
  std::map<std::string, ThreadTime> times;
  DIR *dir = opendir("/proc/self/task");
  if (dir == nullptr) return times;
  while (const dirent *entry = readdir(dir)) {
    const std::string thread = entry->d_name;
    std::ifstream file("/proc/self/task/" + thread + "/schedstat");
    ThreadTime time;
    if (thread[0] != '.' && file >> time.ran >> time.wanted) times[thread] = time;
  }
  closedir(dir);
  return times;
}

}  // namespace

std::chrono::microseconds cpu_time_of(std::chrono::microseconds limit,
                                      const std::function<void()> &wait) {
  const auto used = [] {
    rusage now{};
    getrusage(RUSAGE_SELF, &now);
    return std::chrono::seconds(now.ru_utime.tv_sec + now.ru_stime.tv_sec) +
           std::chrono::microseconds(now.ru_utime.tv_usec + now.ru_stime.tv_usec);
  };
  auto least = std::chrono::microseconds::max();
  for (int i = 0; i < 5 && least >= limit; ++i) {
    const auto before = used();
    const auto start = std::chrono::steady_clock::now();
    std::map<std::string, ThreadTime> earlier = thread_times();
    wait();
    const double passed =
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    double ran = 0;  // ns
    for (const auto &[thread, now] : thread_times()) {
      const ThreadTime then = earlier[thread];
      const double own = now.ran - then.ran;
      // The part of the time in which it had a processor, or nothing to do.
      if (own > 0) ran += own * passed / std::max(own, passed - (now.wanted - then.wanted));
    }
    const auto all = std::max(std::chrono::microseconds(used() - before),
                              std::chrono::microseconds(int64_t(ran / 1000)));
    least = std::min(least, all);
  }
  return least;
}

int count_descriptors() {
  DIR *dir = opendir("/proc/self/fd");
  if (dir == nullptr) throw std::runtime_error("no /proc/self/fd");
  int count = -1;  // the one that reads the folder
  while (const dirent *entry = readdir(dir)) count += entry->d_name[0] != '.';
  closedir(dir);
  return count;
}

bool can_be_out_of_descriptors() {
  return !has_symbol("__ubsan_handle_type_mismatch_v1");
}

NoDescriptors::NoDescriptors() {
  getrlimit(RLIMIT_NOFILE, &before_);
  rlimit low = before_;
  low.rlim_cur = rlim_t(count_descriptors() + 32);
  setrlimit(RLIMIT_NOFILE, &low);
  for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.push_back(fd);
}

NoDescriptors::~NoDescriptors() {
  while (!taken_.empty()) give_one();
  setrlimit(RLIMIT_NOFILE, &before_);
}

void NoDescriptors::give_one() {
  ::close(taken_.back());
  taken_.pop_back();
}

}  // namespace weft::conformance
