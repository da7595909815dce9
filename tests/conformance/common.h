// SPDX-License-Identifier: BSD-2-Clause
// What the conformance tests of every kind of endpoint share: which stack is tested, what an
// application asks for, its objects, and waits with a deadline.
//
// Example:
//     void open_all(Application &app) {
//       const Info found = find_info(app.options, FI_SOURCE);
//       app.open_fabric(found.get());  // fabric, event queue, domain
//       app.open_queues();
//       must(fi_endpoint(app.domain, app.info.get(), app.ep.out(), nullptr));
//       app.bind_queues();
//       must(fi_enable(app.ep));
//     }
//
// Everything goes through the public API, so the same tests run on any stack of providers and
// layers. WEFT_TEST_STACK names the stack in OFI's notation ("tcp", "tcp;ofi_rxm"). A helper that
// cannot go on throws, which GoogleTest reports as a failure of the test. harness.h is about
// connections, unconnected.h about address vectors.
#ifndef WEFT_TESTS_CONFORMANCE_COMMON_H
#define WEFT_TESTS_CONFORMANCE_COMMON_H

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::conformance {

// The API that the tests ask for: old enough for every library that they can be run on.
inline constexpr uint32_t kApi = FI_VERSION(1, 17);
// How long a wait may take before the test fails. Far more than is ever needed.
inline constexpr std::chrono::seconds kPatience{30};
// The same, unless WEFT_TEST_PATIENCE_MS shortens it, for a search for failures.
std::chrono::milliseconds patience();

bool is_sanitized();  // whether AddressSanitizer or ThreadSanitizer is in this process

std::string stack();  // the stack under test
// Where the stack under test has an address that one process can use for both ends, as fi_getinfo
// takes it: WEFT_TEST_NODE, or 127.0.0.1. Its format is WEFT_TEST_ADDR_FORMAT ("FI_ADDR_STR"), or
// what the stack chooses.
const char *test_node();
uint32_t test_addr_format();
// WEFT_TEST_VECTOR_KEYS: keys in hexadecimal, separated by commas, which address vectors of
// unconnected endpoints have (FI_AV_AUTH_KEY).
std::vector<std::string> test_vector_keys();
// Whether addresses are sockaddr_in of 127.0.0.0/8, as those of sockets. Tests that look into
// addresses skip themselves where not.
bool has_ipv4_addresses();
#define NEEDS_IPV4_ADDRESSES()                                 \
  do {                                                         \
    if (!::weft::conformance::has_ipv4_addresses())            \
      GTEST_SKIP() << "looks into an address of the loopback"; \
  } while (0)

// Whether addresses are those of hosts and ports. FI_ADDR_IB_UD and FI_ADDR_CXI are not.
bool has_host_names();
#define NEEDS_HOST_NAMES()                                                          \
  do {                                                                              \
    if (!::weft::conformance::has_host_names())                                     \
      GTEST_SKIP() << "no service of a host has an address of fi_getinfo's format"; \
  } while (0)

// What the stack under test demands of every application with endpoints of this type: 0, or else
// the bits without which fi_getinfo does not offer it. make_hints() has them; device_memory.h does
// most of what they mean.
struct Demands {
  uint64_t mode = 0;
  int mr_mode = 0;
};
const Demands &demands(enum fi_ep_type type);
// Whether a device moves the messages, between registered memory. It keeps no message that has no
// receive, and what it cannot do ends the connection.
bool is_of_a_device(enum fi_ep_type type);
// The same, or a device does so beneath rxm.
bool is_over_a_device(enum fi_ep_type type);
// Whether messages meet their receives, and remote accesses happen, without progress of the target.
bool is_matched_by_a_nic(enum fi_ep_type type);
// Where a message was longer than its receive: FI_ETRUNC (fi_cq.3). Soft-RoCE tells of no more than
// a failed receive.
inline bool is_truncation(enum fi_ep_type type, int err) {
  return err == FI_ETRUNC || (err == FI_EIO && is_of_a_device(type));
}
#define NEEDS_SOFTWARE(type, why)                                       \
  do {                                                                  \
    if (::weft::conformance::is_of_a_device(type)) GTEST_SKIP() << why; \
  } while (0)

// Skips the calling test where fi_getinfo does not offer the stack for these options; `what` is
// what they ask for.
#define NEEDS_OFFER(options, what)                                                \
  do {                                                                            \
    if (!::weft::conformance::find_info(options))                                 \
      GTEST_SKIP() << ::weft::conformance::stack() << " does not offer " << what; \
  } while (0)
// The same for a completion level as a default of connected endpoints, for counters, and for wait
// objects.
#define NEEDS_LEVEL(level) NEEDS_OFFER(Options{.tx_op_flags = level}, #level)
#define NEEDS_COUNTERS()                                                             \
  do {                                                                               \
    if (::weft::conformance::find_info(Options{})->domain_attr->cntr_cnt == 0)       \
      GTEST_SKIP() << ::weft::conformance::stack() << " has no counters (cntr_cnt)"; \
  } while (0)

// The same where messages and writes of these options carry no data for the completion of their
// target (iWARP has none), and where a connection ends by a message that finds no receive.
#define NEEDS_REMOTE_DATA(options)                                                          \
  do {                                                                                      \
    if (::weft::conformance::find_info(options)->domain_attr->cq_data_size == 0)            \
      GTEST_SKIP() << ::weft::conformance::stack() << " has no remote data (cq_data_size)"; \
  } while (0)
#define NEEDS_WAITING_MESSAGES()                       \
  NEEDS_OFFER(Options{.resource_mgmt = FI_RM_ENABLED}, \
              "FI_RM_ENABLED: messages wait for "      \
              "receives")

// WEFT_TEST_DEVICES: a library that makes devices inside of the test process (tests/verbs). No
// other process sees them.
bool has_devices_inside();
#define NEEDS_PROCESSES()                                                \
  do {                                                                   \
    if (::weft::conformance::has_devices_inside())                       \
      GTEST_SKIP() << "the devices of this test are inside one process"; \
  } while (0)

// Throws, with the place and the error's text, unless rc is 0 (or positive). With
// WEFT_TEST_PAUSE_MS it waits as long first, as a thread does that has lost its processor:
// meanwhile other threads and the peer go on.
void must(ssize_t rc, const char *file = __builtin_FILE(), int line = __builtin_LINE());
std::string error_text(ssize_t rc);

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds time = patience())
      : at_(std::chrono::steady_clock::now() + time) {}
  bool passed() const { return std::chrono::steady_clock::now() >= at_; }
  int left_ms() const;

 private:
  std::chrono::steady_clock::time_point at_;
};

// Owns an object of libfabric; fi_close must succeed.
template <class T>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T *object) : object_(object) {}
  Handle(Handle &&other) noexcept
      : object_(std::exchange(other.object_, nullptr)), is_lent_(other.is_lent_) {}
  Handle &operator=(Handle &&other) noexcept {
    const bool is_lent = other.is_lent_;
    reset(std::exchange(other.object_, nullptr));
    is_lent_ = is_lent;
    return *this;
  }
  ~Handle() { reset(); }
  // An object that its owner closes.
  static Handle lent(T *object) {
    Handle handle(object);
    handle.is_lent_ = true;
    return handle;
  }
  void reset(T *object = nullptr) {
    if (object_ != nullptr && !is_lent_) {
      const int rc = fi_close(&object_->fid);
      EXPECT_EQ(rc, 0) << "fi_close of class " << object_->fid.fclass << ": " << error_text(rc);
    }
    object_ = object;
    is_lent_ = false;
  }
  T **out() {
    reset();
    return &object_;
  }
  T *release() { return std::exchange(object_, nullptr); }  // the caller closes it
  T *get() const { return object_; }
  operator T *() const { return object_; }  // NOLINT: stands for the object in calls of the API
  T *operator->() const { return object_; }
  struct fid *fid() const {
    return &object_->fid;
  }

 private:
  T *object_ = nullptr;
  bool is_lent_ = false;
};

struct InfoDelete {
  void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDelete>;

// What an application asks for; as it stands here for a connected endpoint.
struct Options {
  enum fi_ep_type type = FI_EP_MSG;
  std::string node = test_node();
  std::string service;  // empty: any port
  std::string domain;   // by its name; empty: any
  uint32_t addr_format = test_addr_format();
  uint32_t protocol = FI_PROTO_UNSPEC;
  uint64_t caps = FI_MSG | FI_RMA;
  uint64_t mode = 0;  // that the application can live with
  int mr_mode = 0;
  int domain_mr_mode = 0;  // more bits, for fi_domain alone
  enum fi_progress progress = FI_PROGRESS_UNSPEC;
  enum fi_threading threading = FI_THREAD_UNSPEC;
  enum fi_resource_mgmt resource_mgmt = FI_RM_UNSPEC;
  enum fi_av_type av_type = FI_AV_UNSPEC;
  uint64_t av_flags = 0;            // of fi_av_open
  std::string av_name;              // the same; empty: not shared
  size_t tx_size = 0, rx_size = 0;  // 0: the provider's
  size_t inject_size = 0;           // the same
  size_t max_msg_size = 0;          // the same
  uint64_t tx_op_flags = 0, rx_op_flags = 0;
  uint64_t order = 0;  // msg_order of both directions
  uint32_t tclass = FI_TC_UNSPEC, domain_tclass = FI_TC_UNSPEC;
  fi_cq_attr tx_cq = cq_attr(), rx_cq = cq_attr();
  uint64_t tx_cq_flags = 0, rx_cq_flags = 0;  // FI_SELECTIVE_COMPLETION
  bool one_cq = false;                        // tx_cq takes receives too
  fi_eq_attr eq = eq_attr();
  bool event_queue = false;     // for an unconnected endpoint, too
  std::string auth_key;         // of the endpoint; empty: none
  std::string domain_auth_key;  // of the domain; empty: none
  // Of the address vector (FI_AV_AUTH_KEY); empty: it has none.
  std::vector<std::string> vector_keys = test_vector_keys();
  bool shared_receive = false;  // a shared receive context (fi_srx_context): Application::srx
  uint32_t api = kApi;          // of an unconnected application
  void *rx_owner = nullptr;     // context of rx_cq: the owner's, with FI_PEER (fi_peer.3)
  void *srx_owner = nullptr;    // the same of the shared receive context

  static fi_cq_attr cq_attr(enum fi_cq_format format = FI_CQ_FORMAT_DATA,
                            enum fi_wait_obj wait = FI_WAIT_NONE) {
    fi_cq_attr attr{};
    attr.format = format;
    attr.wait_obj = wait;
    return attr;
  }
  static fi_eq_attr eq_attr(enum fi_wait_obj wait = FI_WAIT_NONE) {
    fi_eq_attr attr{};
    attr.wait_obj = wait;
    return attr;
  }
};

// Hints for the stack under test, with the modes that it demands and no others.
Info make_hints(const Options &options);
// The same for a connected endpoint.
Info make_hints(uint64_t caps = FI_MSG | FI_RMA);
// fi_getinfo; throws if it fails.
Info get_info(const char *node, const char *service, uint64_t flags, const fi_info *hints,
              uint32_t api = kApi);
// The same, returning the code.
int try_info(Info &out, const char *node, const char *service, uint64_t flags, const fi_info *hints,
             uint32_t api = kApi);
// The first entry of exactly the stack under test; null when fi_getinfo has none.
Info find_info(const Options &options, uint64_t flags = 0, uint32_t api = kApi);
// `size`, or the length of the longest message (max_msg_size) where that is less.
inline size_t up_to_limit(size_t size, const Options &options = {}) {
  return std::min(size, find_info(options)->ep_attr->max_msg_size);
}
// Of a test program: where fi_getinfo does not offer the stack, all of its tests are skipped, or
// fail where WEFT_TEST_REQUIRED is set. The result is for a variable outside of any function.
const ::testing::Environment *require_stack(const Options &options);
// An address of the format under test, at test_node() with this service, or queue pair; the port of
// an address of IPv4 or IPv6.
std::string address_at(const Options &options, unsigned service);
std::string port_of(const std::string &ip_address);
bool have_ipv6_loopback();
std::string caps_text(uint64_t caps);

// Notes in the test's result what it covers ("FI_TAGGED", "FI_WAIT_FD"): docs/support.md counts it.
void covers(const std::string &features);

// A completion, good or bad, with all that the queue's format has.
struct Done {
  void *context = nullptr;
  uint64_t flags = 0;
  size_t len = 0;
  void *buf = nullptr;
  uint64_t data = 0;
  uint64_t tag = 0;
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  size_t olen = 0;
  int err = 0;
  int prov_errno = 0;
  std::string err_data;
};
using Completion = Done;
// One completion of a queue of any format, if there is one, by fi_cq_read and by fi_cq_readfrom.
std::optional<Done> poll_cq(fid_cq *cq);
std::optional<Completion> poll(fid_cq *cq);

// One application with one endpoint. Members close in the order that the API asks for.
struct Application {
  explicit Application(Options options = {}) : options(std::move(options)) {}
  void open_fabric(const fi_info *info);
  void open_queues();  // and the shared receive context
  void bind_queues();
  // A counter, bound to the endpoint (0: not bound); before enabling.
  fid_cntr *count(uint64_t what, fi_cntr_attr attr = {}, void *context = nullptr);
  fid_mr *expose(void *buffer, size_t size, uint64_t access, uint64_t key = 0, uint64_t flags = 0);
  // Where the stack demands FI_MR_ENDPOINT: binds a region to the endpoint and enables it, which
  // expose() does unless `holds_regions` (a test binds more). Elsewhere it does nothing.
  void enable(fid_mr *region);
  bool holds_regions = false;
  // What a peer calls the first byte of an exposed buffer.
  uint64_t base_of(const void *buffer) const;
  // What arrives of remote data: as many bytes as the stack has (cq_data_size).
  uint64_t arriving(uint64_t data) const;
  void progress();
  fid_cq *receive_cq() const { return options.one_cq ? tx_cq.get() : rx_cq.get(); }
  std::string name() const;  // the endpoint's own address

  Options options;
  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> tx_cq, rx_cq;
  std::vector<Handle<fid_cntr>> counters;
  Handle<fid_ep> srx;
  Handle<fid_ep> ep;
  std::vector<Handle<fid_mr>> regions;
};

// Waits that make progress meanwhile.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual void progress() = 0;

  // Makes progress until the predicate holds; false if it never does.
  bool until(const std::function<bool()> &predicate, std::chrono::milliseconds time = patience());
  Completion wait(fid_cq *cq);  // the next one; throws when none comes
  void wait_count(fid_cntr *counter, uint64_t value);
  // Calls again while it returns -FI_EAGAIN; throws on any other error.
  void post(const std::function<ssize_t()> &operation);
  // The same, returning the code.
  ssize_t attempt(const std::function<ssize_t()> &operation);
  // So many rounds of progress that what could happen, happened: by a message there and back.
  void settle();

 private:
  virtual std::optional<Completion> next(fid_cq *cq) { return poll_cq(cq); }
};

// Bytes that differ from place to place and from seed to seed.
std::vector<uint8_t> pattern(size_t size, unsigned seed);
std::vector<iovec> cut(std::vector<uint8_t> &bytes, size_t parts);
// The bits that a tag may have (fi_ep_attr.mem_tag_format).
uint64_t tag_bits(const fi_info &info);

// What fi_getname and its like say; `call` gets a buffer and its size.
template <class Call>
std::string address_of(Call call) {
  char buffer[256];
  size_t size = sizeof buffer;
  must(call(buffer, &size));
  return {buffer, size};
}

// A buffer for many messages of any source (FI_MULTI_RECV), which is its own context.
void post_multi(fid_ep *ep, std::vector<uint8_t> &buffer);

// fi_rx_size_left, which is deprecated and still there.
ssize_t receives_left(fid_ep *ep);

// The processor time that this process uses in a wait, or would use if it had the processors to
// itself: a thread that spins uses all of the time, however busy the machine is. The least of five
// waits, because what came before may not be over when the first begins. It stops at the first that
// uses less than `limit`.
std::chrono::microseconds cpu_time_of(std::chrono::microseconds limit,
                                      const std::function<void()> &wait);

// Open descriptors of this process. The library's control thread opens and closes some of its own,
// so a test that compares two counts runs in a fresh process with kNoControl.
int count_descriptors();
inline constexpr const char *kNoControl = "FI_CONTROL=deny";
// Whether this program can do its work without a free descriptor: UBSan opens a pipe to look at
// memory, and takes a failure for a bug.
bool can_be_out_of_descriptors();

// Lowers the limit of descriptors and takes all that are left. Gives them back one by one.
class NoDescriptors {
 public:
  NoDescriptors();
  ~NoDescriptors();
  void give_one();

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

}  // namespace weft::conformance

#endif
