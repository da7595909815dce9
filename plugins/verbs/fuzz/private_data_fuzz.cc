// SPDX-License-Identifier: BSD-2-Clause
// Private data of hostile peers, in any order of requests, answers and ends, to an application with
// a passive endpoint and endpoints. Input: a byte with the kind of addresses and endpoints, then
// events: a byte that names it, a byte with the size of its data, the data.
//
// A model that knows how private data is laid out (private_data.h, xrc_data.h) says which requests
// are told, and which parameter each event must have. Of XRC endpoints, whose answers come in
// several steps, only requests.
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/info.h"
#include "plugins/verbs/double/double.h"
#include "plugins/verbs/fuzz/strangers.h"
#include "plugins/verbs/provider.h"
#include "plugins/verbs/xrc_data.h"
#include "tests/fuzz/core_services.h"

namespace weft::verbs::fuzz {
namespace {

constexpr size_t kHeader = 36, kMostEndpoints = 12;

// The parameter of fi_connect or fi_accept behind the bytes that are skipped. The first byte is its
// length; bytes that are not sent read as 0.
std::string parameter_in(std::string_view sent, size_t skipped) {
  if (sent.size() <= skipped) return {};
  sent.remove_prefix(skipped);
  const size_t n = uint8_t(sent[0]);
  if (n > 55) return {};
  std::string parameter(sent.substr(1, n));
  parameter.resize(n);
  return parameter;
}

// The parameter that a passive endpoint of XRC tells with a request; nothing: it refuses that.
std::optional<std::string> xrc_parameter_in(std::string_view sent, bool lookup) {
  std::string delivered(sent);
  delivered.resize(lookup ? 180 : 56);
  const auto byte = [&](size_t at) { return uint8_t(delivered[at]); };
  const uint32_t target = uint32_t(byte(5)) << 16 | uint32_t(byte(6)) << 8 | byte(7);
  const bool numbers_fit = byte(4) == 0 && byte(8) == 0;
  if (byte(0) != 2 || byte(1) != 0 || !numbers_fit || byte(16) > 39) return {};
  if (lookup != (target != 0)) return {};
  return delivered.substr(17, byte(16));
}

class Input {
 public:
  Input(const uint8_t *data, size_t size) : rest_(reinterpret_cast<const char *>(data), size) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto value = uint8_t(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  std::string_view bytes(size_t most) {
    const size_t size = std::min({size_t(byte()), most, rest_.size()});
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

 private:
  std::string_view rest_;
};

class World {
 public:
  World(bool infiniband, bool xrc)
      : infiniband_(infiniband),
        xrc_(xrc),
        device_(network_.add({.name = "dbl0", .infiniband = infiniband})),
        provider_(instance(), settings()) {
    fi_info hints{};
    hints.mode = FI_RX_CQ_DATA;
    hints.addr_format = infiniband ? FI_SOCKADDR_IB : FI_SOCKADDR_IN;
    fi_ep_attr ep_attr{};
    if (xrc) ep_attr.protocol = FI_PROTO_RDMA_CM_IB_XRC;
    hints.ep_attr = &ep_attr;
    info_ = provider_.getinfo({.hints = &hints}).value().release();
    fi_fabric_attr attr{};
    attr.api_version = FI_VERSION(2, 6);
    fabric_ = provider_.fabric(attr, nullptr).value();
    must(fi_domain(fabric_, info_, &domain_, nullptr) == 0, "no domain");
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_NONE;
    must(fi_eq_open(fabric_, &eq_attr, &eq_, nullptr) == 0, "no event queue");
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_DATA;
    must(fi_cq_open(domain_, &cq_attr, &cq_, nullptr) == 0, "no completion queue");
    if (xrc) must(fi_srx_context(domain_, nullptr, &srx_, nullptr) == 0, "no shared context");
    listen();
    strangers_ = std::make_unique<Strangers>(
        sdk::read_address(info_->addr_format, info_->src_addr, info_->src_addrlen).value(), xrc);
  }

  ~World() {
    settle();
    for (fi_info *request : requests_) free_info(request);
    while (!endpoints_.empty()) close_endpoint(0);
    strangers_.reset();
    must(fi_close(&pep_->fid) == 0, "fi_close of the passive endpoint");
    if (srx_ != nullptr) must(fi_close(&srx_->fid) == 0, "fi_close of the shared context");
    for (struct fid *fid : {&cq_->fid, &eq_->fid, &domain_->fid, &fabric_->fid})
      must(fi_close(fid) == 0, "fi_close");
    free_info(info_);
    must(network_.open_objects().empty(), "objects are left open");
    must(network_.complaints().empty(), "a rule of the libraries was broken");
  }

  void run(Input &input) {
    const uint8_t what = input.byte();
    switch (what % 14) {
      case 0:
        return knock(input.bytes(infiniband_ ? 92 : 56), what);
      case 13:
        return knock_xrc(input.bytes(180), what);
      case 1:
        read_event();
        return;
      case 2:
        return accept(input.bytes(80));
      case 3:
        return reject(input.bytes(80));
      case 4:
        return drop_request();
      case 5:
        return connect(input.bytes(80));
      case 6:
        return answer(input.bytes(196), what);
      case 7:
        return refuse(input.bytes(148));
      case 8:
        strangers_->leave(what, /*says_so=*/false);
        return;
      case 9:
        strangers_->leave(what, /*says_so=*/true);
        return;
      case 10:
        if (!endpoints_.empty()) fi_shutdown(endpoints_[what % endpoints_.size()], 0);
        return;
      case 11:
        if (!endpoints_.empty()) close_endpoint(what % endpoints_.size());
        return;
      case 12:
      default:
        return listen_again();
    }
  }

  // Everything that is under way arrives.
  void settle() {
    for (int i = 0; i < 8; ++i) {
      strangers_->run();
      read_all();
    }
  }

 private:
  const weft_instance *instance() {
    instance_.struct_size = sizeof instance_;
    instance_.core = &weft::fuzz::kFuzzCore;
    instance_.magic = WEFT_INSTANCE_MAGIC;
    instance_.stack = "verbs";
    return &instance_;
  }
  static Settings settings() {
    Settings settings;
    settings.close_linger_ms = 0;
    return settings;
  }

  void listen() {
    must(fi_passive_ep(fabric_, info_, &pep_, nullptr) == 0, "no passive endpoint");
    must(fi_pep_bind(pep_, &eq_->fid, 0) == 0, "fi_pep_bind");
    must(fi_listen(pep_) == 0, "fi_listen");
    alignas(sockaddr_storage) char name[64];
    size_t size = sizeof name;
    must(fi_getname(&pep_->fid, name, &size) == 0, "fi_getname");
    name_ = sdk::read_address(info_->addr_format, name, size).value();
  }

  // Requests without an answer end with their passive endpoint.
  void listen_again() {
    settle();
    must(fi_close(&pep_->fid) == 0, "fi_close of the passive endpoint");
    for (fi_info *request : requests_) free_info(request);
    requests_.clear();
    listen();
  }

  void knock(std::string_view data, uint8_t queue_pair) {
    if (xrc_) return knock_xrc(data, queue_pair & 0x7f);
    if (!strangers_->connect(name_, data, queue_pair, /*lookup=*/false)) return;
    strangers_->run();
    expected_requests_.push_back(parameter_in(data, infiniband_ ? kHeader : 0));
    read_all();
    must(expected_requests_.empty(), "a request was not told");
  }

  // Bytes with a header that is right but for its numbers, if bit 7 says so.
  std::string dress(std::string_view data, uint8_t what) {
    if (!xrc_ || (what & 0x80) == 0) return std::string(data);
    const auto at = [&](size_t i) { return i < data.size() ? uint8_t(data[i]) : uint8_t(0); };
    const XrcMessage message(
        {.reciprocal = (at(0) & 1) != 0,
         .port = uint16_t((at(0) & 2) != 0 ? strangers_->name().port() : at(0)),
         .target = at(1),
         .srq = at(2),
         .tag = at(3)},
        data.size() > 4 ? data.substr(4) : std::string_view());
    return {reinterpret_cast<const char *>(message.bytes().data()), message.bytes().size()};
  }

  // To the passive endpoint, or where reciprocal connections are taken.
  void knock_xrc(std::string_view raw, uint8_t what) {
    if (!xrc_) return;
    const bool lookup = (what & 0x20) != 0;
    std::string data = dress(raw, what);
    if (!lookup) data.resize(std::min<size_t>(data.size(), 56));
    const bool to_domain = (what & 0x40) != 0 && reciprocal_port_ != 0;
    const sdk::Address target = to_domain ? name_.with_port(reciprocal_port_).value() : name_;
    if (!strangers_->connect(target, data, what, lookup)) return;
    strangers_->run();
    if (const auto parameter = xrc_parameter_in(data, lookup); parameter && !to_domain)
      expected_requests_.push_back(*parameter);
    read_all();
    must(expected_requests_.empty(), "a request was not told");
  }

  void read_all() {
    while (read_event()) {
    }
  }

  bool read_event() {
    constexpr size_t kEntry = sizeof(fi_eq_cm_entry);
    alignas(fi_eq_cm_entry) char buffer[kEntry + 256];
    uint32_t type = 0;
    const ssize_t n = fi_eq_read(eq_, &type, buffer, sizeof buffer, 0);
    if (n == -FI_EAVAIL) return read_error();
    if (n < 0) return false;
    must(size_t(n) >= kEntry, "an event is cut");
    const auto &entry = *reinterpret_cast<const fi_eq_cm_entry *>(buffer);
    const std::string data(buffer + kEntry, size_t(n) - kEntry);
    must(data.size() <= 55, "a parameter is too long");
    if (type == FI_CONNREQ) {
      must(!expected_requests_.empty() && expected_requests_.front() == data,
           "a request has another parameter than was sent");
      expected_requests_.pop_front();
      requests_.push_back(entry.info);
    }
    if (type == FI_CONNECTED) expect_answer(entry.fid, data);
    return true;
  }

  bool read_error() {
    char text[256];
    fi_eq_err_entry error{};
    error.err_data = text;
    error.err_data_size = sizeof text;
    must(fi_eq_readerr(eq_, &error, 0) > 0, "fi_eq_readerr");
    must(error.err != 0, "an error without a number");
    if (error.err == FI_ECONNREFUSED) expect_answer(error.fid, {text, error.err_data_size});
    return true;
  }

  void expect_answer(struct fid *fid, const std::string &data) {
    const auto at = expected_answers_.find(fid);
    if (at == expected_answers_.end()) return;
    must(at->second == data, "an answer has another parameter than was sent");
    expected_answers_.erase(at);
  }

  fid_ep *make_endpoint(fi_info *from) {
    fid_ep *ep = nullptr;
    if (xrc_) from->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    if (fi_endpoint(domain_, from, &ep, nullptr) != 0) return nullptr;
    must(fi_ep_bind(ep, &eq_->fid, 0) == 0, "fi_ep_bind of the event queue");
    must(fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV) == 0, "fi_ep_bind of the queue");
    if (srx_ != nullptr) must(fi_ep_bind(ep, &srx_->fid, 0) == 0, "fi_ep_bind of the context");
    endpoints_.push_back(ep);
    return ep;
  }

  void accept(std::string_view data) {
    if (requests_.empty() || endpoints_.size() >= kMostEndpoints) return;
    fi_info *const request = requests_.front();
    requests_.pop_front();
    fid_ep *const ep = make_endpoint(request);
    if (ep != nullptr) fi_accept(ep, data.data(), data.size());
    free_info(request);
    strangers_->run();
  }

  void reject(std::string_view data) {
    if (requests_.empty()) return;
    fi_info *const request = requests_.front();
    requests_.pop_front();
    must(fi_reject(pep_, request->handle, data.data(), data.size()) == 0, "fi_reject");
    must(fi_reject(pep_, request->handle, nullptr, 0) == -FI_EINVAL, "fi_reject, twice");
    free_info(request);
    strangers_->run();
  }

  void drop_request() {
    if (requests_.empty()) return;
    fi_info *const request = requests_.front();
    requests_.pop_front();
    must(fi_close(request->handle) == 0, "fi_close of a request");
    free_info(request);
    strangers_->run();
  }

  void connect(std::string_view data) {
    if (endpoints_.size() >= kMostEndpoints) return;
    fid_ep *const ep = make_endpoint(info_);
    must(ep != nullptr, "fi_endpoint");
    if (xrc_) {
      fi_connect(ep, strangers_->name().data(), data.data(), data.size());
      read_all();
      return strangers_->run();
    }
    const size_t before = strangers_->requests().size();
    if (fi_connect(ep, strangers_->name().data(), data.data(), data.size()) != 0) return;
    read_all();
    strangers_->run();
    if (strangers_->requests().size() == before) return;
    // What a peer that keeps the rules gets of ours.
    const std::string expected(data.substr(0, 55));
    const auto &[id, got] = strangers_->requests().back();
    must(parameter_in(got, infiniband_ ? kHeader : 0) == expected, "our request is another");
    must(!infiniband_ || (got.size() == 92 && got[0] == 0 && got[1] == 0), "our header is wrong");
    callers_.push_back(&ep->fid);
  }

  // Where our requests say that reciprocal connections are taken.
  void learn_port() {
    if (!xrc_ || strangers_->requests().empty()) return;
    const std::string &got = strangers_->requests().front().second;
    must(got.size() >= 17 && got[0] == 2 && uint8_t(got[16]) <= 39, "our request is malformed");
    reciprocal_port_ = uint16_t(uint8_t(got[2]) << 8 | uint8_t(got[3]));
  }

  // The endpoint whose request the strangers will answer next; null: they have none.
  struct fid *next_caller() {
    if (strangers_->requests().empty() || callers_.empty()) return nullptr;
    struct fid *const caller = callers_.front();
    callers_.pop_front();
    return caller;
  }

  void answer(std::string_view data, uint8_t queue_pair) {
    learn_port();
    if (xrc_) {
      strangers_->accept(dress(data.substr(0, std::min<size_t>(data.size(), 136)), queue_pair),
                         queue_pair);
      return read_all();
    }
    struct fid *const caller = next_caller();
    if (!strangers_->accept(data, queue_pair) || caller == nullptr) return;
    expect(caller, data);
  }

  void refuse(std::string_view data) {
    learn_port();
    if (xrc_) {
      strangers_->reject(data.substr(0, std::min<size_t>(data.size(), 136)));
      return read_all();
    }
    struct fid *const caller = next_caller();
    if (!strangers_->reject(data) || caller == nullptr) return;
    expect(caller, data);
  }

  void expect(struct fid *caller, std::string_view data) {
    const bool is_open =
        std::ranges::any_of(endpoints_, [caller](const fid_ep *ep) { return &ep->fid == caller; });
    if (is_open) expected_answers_[caller] = parameter_in(data, 0);
    read_all();
    must(!expected_answers_.contains(caller), "an answer was not told");
  }

  void close_endpoint(size_t which) {
    fid_ep *const ep = endpoints_[which];
    endpoints_.erase(endpoints_.begin() + ptrdiff_t(which));
    expected_answers_.erase(&ep->fid);
    std::ranges::replace(callers_, &ep->fid, static_cast<struct fid *>(nullptr));
    must(fi_close(&ep->fid) == 0, "fi_close of an endpoint");
    strangers_->run();
  }

  const bool infiniband_, xrc_;
  verbs_double::Network network_;
  verbs_double::Device &device_;
  weft_instance instance_{};
  VerbsProvider provider_;
  fi_info *info_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  fid_eq *eq_ = nullptr;
  fid_cq *cq_ = nullptr;
  fid_pep *pep_ = nullptr;
  fid_ep *srx_ = nullptr;
  uint16_t reciprocal_port_ = 0;
  sdk::Address name_;
  std::unique_ptr<Strangers> strangers_;
  std::deque<std::string> expected_requests_;
  std::deque<fi_info *> requests_;
  std::vector<fid_ep *> endpoints_;
  std::deque<struct fid *> callers_;  // whose request the strangers have
  std::map<struct fid *, std::string> expected_answers_;
};

}  // namespace
}  // namespace weft::verbs::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace weft::verbs::fuzz;
  if (size == 0 || size > 4096) return 0;
  Input input(data, size);
  const uint8_t kind = input.byte() % 3;
  World world(/*infiniband=*/kind == 1, /*xrc=*/kind == 2);
  while (!input.empty()) world.run(input);
  return 0;
}
