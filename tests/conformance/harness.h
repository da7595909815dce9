// SPDX-License-Identifier: BSD-2-Clause
// What the conformance tests stand on: two endpoints in one process, connected over loopback, and
// waits that end.
//
//   Pair pair;                                          // a and b, connected, with default options
//   must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
//   must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &out));
//   EXPECT_EQ(pair.wait(pair.b.rx_cq).len, out.size());
//
// Everything goes through the public API, so the same tests say what any stack of providers and
// layers does: the stack under test is what WEFT_TEST_STACK names (OFI's notation, "tcp"). A helper
// that cannot go on throws, which GoogleTest reports as a failure of the test. It is not a way to
// test objects without a connection: those tests make what they need by themselves.
#ifndef WEFT_TESTS_CONFORMANCE_HARNESS_H
#define WEFT_TESTS_CONFORMANCE_HARNESS_H

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::conformance {

// The API that the tests ask for: old enough for every library that they can be run on.
inline constexpr uint32_t kApi = FI_VERSION(1, 17);
// How long anything may take before the test fails. Far more than is ever needed.
inline constexpr std::chrono::seconds kPatience{30};

std::string stack();  // the stack under test
// Of a test program's environment: fi_getinfo does not offer the stack. Skips all of its tests, or
// fails them where WEFT_TEST_REQUIRED is set.
void stack_is_missing(const char *endpoint_type);

// Throws, with the place and the error's text, unless rc is 0 (or positive).
void must(ssize_t rc, const char *file = __builtin_FILE(), int line = __builtin_LINE());
std::string error_text(ssize_t rc);

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds time = kPatience)
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
  Handle(Handle &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle &operator=(Handle &&other) noexcept {
    reset(std::exchange(other.object_, nullptr));
    return *this;
  }
  ~Handle() { reset(); }
  void reset(T *object = nullptr) {
    if (object_ != nullptr) {
      const int rc = fi_close(&object_->fid);
      EXPECT_EQ(rc, 0) << "fi_close of class " << object_->fid.fclass << ": " << error_text(rc);
    }
    object_ = object;
  }
  T **out() {
    reset();
    return &object_;
  }
  T *get() const { return object_; }
  operator T *() const { return object_; }  // NOLINT: stands for the object in calls of the API
  T *operator->() const { return object_; }
  struct fid *fid() const {
    return &object_->fid;
  }

 private:
  T *object_ = nullptr;
};

struct InfoDelete {
  void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDelete>;

// Hints for the stack under test: FI_EP_MSG with messages and RMA, no mode bit at all.
Info make_hints(uint64_t caps = FI_MSG | FI_RMA);
// fi_getinfo; throws if it fails.
Info get_info(const char *node, const char *service, uint64_t flags, const fi_info *hints,
              uint32_t api = kApi);
// The same, returning the code.
int try_info(Info &out, const char *node, const char *service, uint64_t flags, const fi_info *hints,
             uint32_t api = kApi);
bool have_ipv6_loopback();

// What an application decides before it connects.
struct Options {
  std::string node = "127.0.0.1";
  uint32_t addr_format = FI_FORMAT_UNSPEC;
  uint64_t caps = FI_MSG | FI_RMA;
  int mr_mode = 0;
  enum fi_progress progress = FI_PROGRESS_UNSPEC;
  enum fi_threading threading = FI_THREAD_UNSPEC;
  enum fi_resource_mgmt resource_mgmt = FI_RM_UNSPEC;
  size_t tx_size = 0, rx_size = 0;  // 0: the provider's
  uint64_t tx_op_flags = 0, rx_op_flags = 0;
  fi_cq_attr tx_cq = cq_attr(), rx_cq = cq_attr();
  uint64_t tx_cq_flags = 0, rx_cq_flags = 0;  // FI_SELECTIVE_COMPLETION
  bool one_cq = false;                        // tx_cq takes receives too
  fi_eq_attr eq = eq_attr();
  bool shared_receive = false;

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

Info options_info(const Options &options, const char *service = nullptr, uint64_t flags = 0);

// A completion, good or bad.
struct Done {
  void *context = nullptr;
  uint64_t flags = 0;
  size_t len = 0;
  void *buf = nullptr;
  uint64_t data = 0;
  size_t olen = 0;
  int err = 0;
  int prov_errno = 0;
};
// One completion of a queue in FI_CQ_FORMAT_DATA, if there is one.
std::optional<Done> poll_cq(fid_cq *cq);

// An event of an event queue, good or bad.
struct Event {
  uint32_t type = 0;
  struct fid *fid = nullptr;
  Info info;         // of FI_CONNREQ
  std::string data;  // private data, or err_data
  int err = 0;
};
std::optional<Event> poll_eq(fid_eq *eq);

// One application with one endpoint. Members close in the order that the API asks for.
struct Side {
  explicit Side(Options options = {}) : options(std::move(options)) {}
  // Fabric, domain and queues for `info`.
  void open(const fi_info *info);
  void open_queues();
  // The endpoint, bound and enabled.
  void make_endpoint(fi_info *info);
  void make_unbound_endpoint(fi_info *info);
  void bind_queues();
  fid_cntr *count(uint64_t what,
                  fi_cntr_attr attr = {});  // a counter, bound to the endpoint; before enabling
  fid_mr *expose(void *buffer, size_t size, uint64_t access, uint64_t key = 0, uint64_t flags = 0);
  void progress();
  fid_cq *receive_cq() const { return options.one_cq ? tx_cq.get() : rx_cq.get(); }
  std::string name() const;  // the endpoint's own address
  std::string peer() const;

  Options options;
  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
  Handle<fid_domain> domain;
  Handle<fid_cq> tx_cq, rx_cq;
  std::vector<Handle<fid_cntr>> counters;
  Handle<fid_ep> srx;
  Handle<fid_ep> ep;
  std::vector<Handle<fid_mr>> regions;
  std::function<void(Side &)> before_enable;  // more to bind
};

// A passive endpoint that listens.
struct Listener {
  explicit Listener(Side &side, const std::string &node = "");  // on its fabric and event queue
  std::string address() const;

  Info info;
  Handle<fid_pep> pep;
};

// Two sides, a (which connects) and b (which accepts), connected.
class Pair {
 public:
  explicit Pair(const Options &options = {}) : Pair(options, options) {}
  Pair(const Options &active, const Options &passive,
       const std::function<void(Side &)> &before_enable = {});

  void progress();
  // Waits for the next completion or event; throws when there is none.
  Done wait(fid_cq *cq);
  Event wait(fid_eq *eq);
  Event wait_event(fid_eq *eq, uint32_t type);
  // Makes progress until the predicate holds; false if it never does.
  bool until(const std::function<bool()> &predicate, std::chrono::milliseconds time = kPatience);
  // Calls again while it returns -FI_EAGAIN, making progress; throws on any other error.
  void post(const std::function<ssize_t()> &operation);
  // After both sides made so much progress that whatever could happen would have happened.
  void settle();

  Side a, b;
  std::unique_ptr<Listener> listener;
};

// Drives several sides at once until an event or a completion arrives at one of them.
Event wait_event(fid_eq *eq, std::initializer_list<Side *> sides);
bool until(const std::function<bool()> &predicate, std::initializer_list<Side *> sides,
           std::chrono::milliseconds time = kPatience);
// Accepts the next connection request of `passive` on `ep_owner`, whose fabric it shares or is.
Event next_request(Side &passive, std::initializer_list<Side *> sides);

// fi_rx_size_left, which is deprecated and still there.
ssize_t receives_left(fid_ep *ep);

// Bytes that differ from place to place and from seed to seed.
std::vector<uint8_t> pattern(size_t size, unsigned seed);

int count_descriptors();  // of this process
// Whether this program can do its work without a free descriptor: UBSan opens a pipe to look at
// memory, and takes a failure for a bug.
bool can_be_out_of_descriptors();

// Runs the calling test in a process of its own, in which the environment has `variables`
// ("NAME=value") from the start and in which no earlier test has touched the library. True: this is
// that process, go on with the body. False: it ran; return.
bool in_fresh_process(std::initializer_list<const char *> variables = {});
bool is_fresh_process();  // of such a test: before the test itself begins

// A child process made by fork, for tests that are in a fresh process, before they use the library.
// It talks to its parent over a socket, in whole numbers, and its exit status must be 0 unless it
// was killed.
class Child {
 public:
  explicit Child(const std::function<void(int socket)> &body);
  ~Child();
  int socket() const { return socket_; }
  void kill();
  void join();  // waits for its end, which must be a good one

 private:
  int wait();
  pid_t pid_ = -1;
  int socket_ = -1;
};
void tell(int socket, uint64_t value);
uint64_t hear(int socket);  // throws when nothing comes
void tell_text(int socket, const std::string &text);
std::string hear_text(int socket);

}  // namespace weft::conformance

#endif
