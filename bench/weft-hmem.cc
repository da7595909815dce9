// SPDX-License-Identifier: BSD-2-Clause
//
// weft-hmem: messages from the memory of a CUDA device of one process into that of another
// (FI_HMEM), beside the same messages between memory of the host, and beside an application that
// copies between device and host by itself. The three take turns. It uses the public C API only:
// the library under test is the libfabric.so.1 that the loader finds (LD_LIBRARY_PATH).

#include <absl/strings/escaping.h>
#include <absl/strings/str_format.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "cpus.h"
#include "party.h"
#include "tests/hmem/device.h"
#include "timed_sizes.h"

namespace weft::bench {
namespace {

using hmem::DeviceMemory;
using nlohmann::json;

constexpr uint64_t kTag = 7, kAckTag = 8;
constexpr size_t kInFlight = 16u << 20, kWindow = 64;

struct Options : PartyOptions {
  std::string test = "bw";
  std::string sizes = "4096,65536,1048576,4194304,16777216";
  std::string cuda = "libcuda.so.1";
  double seconds = 0.2;
  uint32_t rounds = 5;
};

// Where the messages are: the library is given memory of the host; of the device, on both sides, or
// on that which sends ("from"), or the other one ("to"); or memory of the host to and from which
// this program copies ("staged").
const std::vector<std::string> kKinds = {"host", "device", "from", "to", "staged"};

size_t window_of(const Options &options, size_t size) {
  return options.test == "lat" ? 1 : std::clamp<size_t>(kInFlight / size, 1, kWindow);
}

// One of the two sides, with room for a window of messages.
class Side {
 public:
  Side(const Options &options, size_t size, bool sends)
      : options_(options),
        party_(options, 1),
        sends_(sends),
        size_(size),
        window_(window_of(options, size)),
        host_(size * window_, 0, DeviceMemory::Kind::kHost),
        device_(size * window_),
        acks_(64, 0, DeviceMemory::Kind::kHost),
        contexts_(2 * window_ + 2) {
    host_desc_ = register_memory(host_, FI_HMEM_SYSTEM);
    device_desc_ = register_memory(device_, FI_HMEM_CUDA);
    ack_desc_ = register_memory(acks_, FI_HMEM_SYSTEM);
  }
  ~Side() {
    regions_.clear();
    party_.close();
  }

  std::string name() { return party_.name(); }
  void meet(const std::string &peer) { peer_ = party_.insert(peer); }

  // The pattern of message i stands where `kind` sends from.
  void fill(const std::string &kind) const {
    std::vector<uint8_t> bytes(size_ * window_);
    for (size_t i = 0; i < window_ && sends_; ++i)
      fill_pattern(reinterpret_cast<char *>(bytes.data() + i * size_), size_, i);
    hmem::copy(payload(kind).data(), bytes.data(), bytes.size());
  }
  // The last window has arrived where `kind` receives.
  void expect(const std::string &kind) const {
    std::vector<uint8_t> bytes(size_ * window_);
    hmem::copy(bytes.data(), payload(kind).data(), bytes.size());
    for (size_t i = 0; i < window_; ++i)
      expect_pattern(reinterpret_cast<const char *>(bytes.data() + i * size_), size_, i);
  }

  // Windows of messages, each acknowledged by 8 bytes when the whole of it is where it belongs; or
  // ping-pong. `ready` is called when the receives of the first one are posted.
  template <class Ready>
  double run(const std::string &kind, uint64_t iterations, Ready ready) {
    const bool ping_pong = options_.test == "lat";
    if (!sends_ || ping_pong)
      post_window(kind);
    else
      post_ack();
    ready();
    const uint64_t start = now_ns();
    for (uint64_t i = 0; i < iterations; ++i) {
      const bool is_last = i + 1 == iterations;
      if (ping_pong) {
        if (sends_) send_window(kind);
        await_window(kind);
        if (!is_last) post_window(kind);
        if (!sends_) send_window(kind);
      } else if (sends_) {
        send_window(kind);
        while (received_ == 0) progress();
        received_ = 0;
        if (!is_last) post_ack();
      } else {
        await_window(kind);
        if (!is_last) post_window(kind);
        retry([&] {
          return fi_tsend(party_.ep(0), acks_.data(), 8, ack_desc_, peer_, kAckTag,
                          &contexts_[2 * window_]);
        });
        ++unsent_;
        while (unsent_ != 0) progress();
      }
    }
    return seconds_since(start);
  }

 private:
  void *register_memory(const DeviceMemory &memory, enum fi_hmem_iface iface) {
    const auto mode = static_cast<uint64_t>(party_.info()->domain_attr->mr_mode);
    if ((mode & (iface == FI_HMEM_SYSTEM ? FI_MR_LOCAL : FI_MR_LOCAL | FI_MR_HMEM)) == 0)
      return nullptr;
    const iovec iov = {memory.data(), memory.size()};
    fi_mr_attr attr = {};
    attr.mr_iov = &iov;
    attr.iov_count = 1;
    attr.access = FI_SEND | FI_RECV;
    attr.requested_key = regions_.size() + 1;
    attr.iface = iface;
    fid_mr *region = nullptr;
    must("fi_mr_regattr", fi_mr_regattr(party_.domain(), &attr, 0, &region));
    regions_.emplace_back(region);
    return fi_mr_desc(region);
  }
  bool on_device(const std::string &kind) const {
    return kind == "device" || kind == (sends_ ? "from" : "to");
  }
  const DeviceMemory &payload(const std::string &kind) const {
    return on_device(kind) || kind == "staged" ? device_ : host_;
  }
  uint8_t *at(const std::string &kind, size_t i) const {
    return (on_device(kind) ? device_ : host_).data() + i * size_;
  }
  void *desc_of(const std::string &kind) const {
    return on_device(kind) ? device_desc_ : host_desc_;
  }

  void post_window(const std::string &kind) {
    for (size_t i = 0; i < window_; ++i)
      retry([&] {
        return fi_trecv(party_.ep(0), at(kind, i), size_, desc_of(kind), FI_ADDR_UNSPEC, kTag, 0,
                        &contexts_[i]);
      });
  }
  void post_ack() {
    retry([&] {
      return fi_trecv(party_.ep(0), acks_.data(), 8, ack_desc_, FI_ADDR_UNSPEC, kAckTag, 0,
                      &contexts_[2 * window_ + 1]);
    });
  }
  void send_window(const std::string &kind) {
    for (size_t i = 0; i < window_; ++i) {
      if (kind == "staged") hmem::copy(host_.data() + i * size_, device_.data() + i * size_, size_);
      retry([&] {
        return fi_tsend(party_.ep(0), at(kind, i), size_, desc_of(kind), peer_, kTag,
                        &contexts_[window_ + i]);
      });
      ++unsent_;
    }
    while (unsent_ != 0) progress();
  }
  // Messages of one sender and tag arrive in order.
  void await_window(const std::string &kind) {
    for (size_t i = 0; i < window_; ++i) {
      while (received_ <= i) progress();
      if (kind == "staged") hmem::copy(device_.data() + i * size_, host_.data() + i * size_, size_);
    }
    received_ = 0;
  }
  template <class Call>
  void retry(Call call) {
    for (;;) {
      const ssize_t rc = call();
      if (rc == 0) return;
      if (rc != -FI_EAGAIN) must("a call", rc);
      progress();
    }
  }
  void progress() {
    fi_cq_tagged_entry entries[32];
    const ssize_t n = fi_cq_read(party_.cq(), entries, 32);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      fi_cq_readerr(party_.cq(), &error, 0);
      fail("a message has failed: %s", fi_strerror(error.err));
    }
    if (n < 0 && n != -FI_EAGAIN) must("fi_cq_read", n);
    for (ssize_t i = 0; i < n; ++i)
      if ((entries[i].flags & FI_RECV) != 0)
        ++received_;
      else
        --unsent_;
  }

  const Options &options_;
  Party party_;
  const bool sends_;
  const size_t size_, window_;
  const DeviceMemory host_, device_, acks_;
  std::vector<Fid<fid_mr>> regions_;
  void *host_desc_ = nullptr, *device_desc_ = nullptr, *ack_desc_ = nullptr;
  std::vector<fi_context2> contexts_;  // of receives, of sends, of acknowledgements
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  size_t unsent_ = 0, received_ = 0;
};

// A process that does what it is told: {"peer": ADDRESS}, {"fill": KIND}, {"expect": KIND}, or
// {"run": KIND, "iterations": N}, and answers when it has. It ends with the connection.
void serve(const Options &options, size_t size, bool sends, int cpu, Control &control) {
  pin_to(cpu);
  const hmem::CurrentContext current;  // as an application has
  Side side(options, size, sends);
  control.send({{"address", absl::BytesToHexString(side.name())}});
  json order;
  while (control.receive(options.timeout, &order)) {
    json answer = json::object();
    if (order.contains("peer")) side.meet(absl::HexStringToBytes(order["peer"].get<std::string>()));
    if (order.contains("fill")) side.fill(order["fill"]);
    if (order.contains("expect")) side.expect(order["expect"]);
    if (order.contains("run"))
      answer["seconds"] = side.run(order["run"], order["iterations"], [&] {
        control.send({{"ready", true}});
      });
    control.send(answer);
  }
}

// The two processes.
class Pair {
 public:
  Pair(const Options &options, size_t size) : options_(options) {
    const std::vector<int> cpus = choose_cpus();
    for (const bool sends : {true, false}) {
      const int cpu = cpus.empty() ? -1 : cpus[sends ? 0 : 1];
      sides_.push_back(std::make_unique<Child>([&options, size, sends, cpu](Control &control) {
        serve(options, size, sends, cpu, control);
      }));
    }
    std::vector<std::string> addresses;
    for (const auto &side : sides_)
      addresses.push_back(side->control->receive(options.timeout)["address"]);
    for (size_t i = 0; i < 2; ++i) tell(i, {{"peer", addresses[1 - i]}});
  }
  // The seconds of so many windows, or round trips. The bytes of the last are checked.
  double run(const std::string &kind, uint64_t iterations) {
    for (size_t i = 0; i < 2; ++i) tell(i, {{"fill", kind}});
    const json order = {{"run", kind}, {"iterations", iterations}};
    for (const size_t i : {1, 0}) {  // first the one that receives
      sides_[i]->control->send(order);
      sides_[i]->control->receive(options_.timeout);
    }
    const double seconds = sides_[0]->control->receive(options_.timeout)["seconds"];
    sides_[1]->control->receive(options_.timeout);
    tell(1, {{"expect", kind}});
    return seconds;
  }

 private:
  void tell(size_t side, const json &order) {
    sides_[side]->control->send(order);
    sides_[side]->control->receive(options_.timeout);
  }
  const Options &options_;
  std::vector<std::unique_ptr<Child>> sides_;  // the one that sends, the one that receives
};

// MB/s, or microseconds of half a round trip, by kind.
std::map<std::string, double> measure(const Options &options, size_t size) {
  Pair pair(options, size);
  const double window = static_cast<double>(window_of(options, size));
  std::map<std::string, std::vector<double>> figures;
  std::map<std::string, uint64_t> iterations;
  for (const std::string &kind : kKinds) {
    uint64_t count = 4;
    while (pair.run(kind, count) < options.seconds / 4) count *= 2;
    iterations[kind] = count * 4;
  }
  for (uint32_t round = 0; round < options.rounds; ++round)
    for (const std::string &kind : kKinds) {
      const double each = pair.run(kind, iterations[kind]) / static_cast<double>(iterations[kind]);
      figures[kind].push_back(
          options.test == "lat" ? each * 1e6 / 2 : window * static_cast<double>(size) / each / 1e6);
    }
  std::map<std::string, double> result;
  for (const std::string &kind : kKinds) result[kind] = median_of(figures[kind]);
  return result;
}

int run_main(int argc, char **argv) {
  Options options;
  options.provider = "tcp";
  options.caps |= FI_HMEM;
  options.mr_mode = FI_MR_HMEM;
  CLI::App app(
      "Messages between the memory of CUDA devices of two processes (FI_HMEM), beside messages\n"
      "between memory of the host, and beside copies by the application; the libfabric is the one\n"
      "that the loader finds (set LD_LIBRARY_PATH).\n");
  app.option_defaults()->always_capture_default();
  app.add_option("-t,--test", options.test, "bw: windows of messages; lat: ping-pong")
      ->check(CLI::IsMember({"bw", "lat"}));
  options.add_to(app);
  app.add_option("-S,--sizes", options.sizes, "Comma list: bytes of a message");
  app.add_option("--cuda", options.cuda, "The driver's library");
  app.add_option("--seconds", options.seconds, "Time per figure")->check(CLI::Range(0.001, 60.0));
  app.add_option("--rounds", options.rounds, "Figures of which the median is told")
      ->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  setenv("WEFT_TEST_CUDA", options.cuda.c_str(), 1);  // which device.h opens
  const Library library = loaded_library();
  json report = report_of("weft-hmem", options, library);
  const bool is_latency = options.test == "lat";
  FILE *out = options.json_file == "-" ? stderr : stdout;
  absl::FPrintF(out, "library: %s\n%s, %s\n%9s", library.path, options.provider,
                is_latency ? "us" : "MB/s", "bytes");
  for (const std::string &kind : kKinds) absl::FPrintF(out, " %9s", kind);
  absl::FPrintF(out, " device/host device/staged\n");
  for (const size_t size : parse_sizes(options.sizes, 1)) {
    const std::map<std::string, double> figures = measure(options, size);
    const double device = figures.at("device");
    absl::FPrintF(out, "%9d", size);
    for (const std::string &kind : kKinds) absl::FPrintF(out, " %9.2f", figures.at(kind));
    absl::FPrintF(out, " %11.3f %13.3f\n", device / figures.at("host"),
                  device / figures.at("staged"));
    for (const auto &[kind, value] : figures)
      report["results"].push_back({{"test", options.test + "-" + kind},
                                   {"size", size},
                                   {"value", value},
                                   {"unit", is_latency ? "us" : "MB/s"},
                                   {"better", is_latency ? "lower" : "higher"}});
  }
  options.write(report);
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  return weft::bench::run_program("weft-hmem", [&] { return weft::bench::run_main(argc, argv); });
}
