// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/rdm_harness.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace weft::conformance::rdm {

namespace {

// Without connections that nobody is there shows by time alone, and the tests have less of it than
// programs; nor does a peer in the same thread answer an endpoint that is about to close. Before
// the first fi_getinfo; the environment of the test decides.
[[maybe_unused]] const int impatience = setenv("FI_OFI_RXD_PEER_TIMEOUT_MS", "3000", 0) +
                                        setenv("FI_OFI_RXD_CLOSE_LINGER_MS", "200", 0);

// How long a wait may take: WEFT_TEST_PATIENCE_MS shortens it for one who looks for failures.
std::chrono::milliseconds patience() {
  const char *text = std::getenv("WEFT_TEST_PATIENCE_MS");
  return text != nullptr ? std::chrono::milliseconds(std::max(1, std::atoi(text))) : kPatience;
}

class StackIsThere : public ::testing::Environment {
 public:
  void SetUp() override {
    if (is_fresh_process()) return;  // whoever made it looked
    if (!find_info()) stack_is_missing("FI_EP_RDM");
  }
};
[[maybe_unused]] const auto *const kStackIsThere =
    ::testing::AddGlobalTestEnvironment(new StackIsThere);

}  // namespace

Info make_hints(const Options &options) {
  Info hints = conformance::make_hints(options.caps);
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = options.mr_mode;
  hints->domain_attr->control_progress = options.progress;
  hints->domain_attr->data_progress = options.progress;
  hints->domain_attr->threading = options.threading;
  hints->domain_attr->resource_mgmt = options.resource_mgmt;
  hints->domain_attr->av_type = options.av_type;
  hints->tx_attr->size = options.tx_size;
  hints->rx_attr->size = options.rx_size;
  hints->tx_attr->op_flags = options.tx_op_flags;
  hints->rx_attr->op_flags = options.rx_op_flags;
  hints->tx_attr->msg_order = hints->rx_attr->msg_order = options.order;
  if (options.shared_receive) hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  if (const std::string &key = options.auth_key; !key.empty()) {
    hints->ep_attr->auth_key = reinterpret_cast<uint8_t *>(strdup(key.c_str()));
    hints->ep_attr->auth_key_size = key.size();
  }
  return hints;
}

Info find_info(const Options &options, uint64_t flags, uint32_t api) {
  const Info hints = make_hints(options);
  Info list;
  const char *service = options.service.empty() ? nullptr : options.service.c_str();
  const int rc = try_info(list, options.node.c_str(), service, flags, hints.get(), api);
  if (rc == -FI_ENODATA) return {};
  must(rc);
  for (const fi_info *info = list.get(); info != nullptr; info = info->next)
    if (info->fabric_attr->prov_name == stack()) return Info(fi_dupinfo(info));
  return {};
}

bool offers(uint64_t caps) {
  Options options;
  options.caps = caps;
  return find_info(options) != nullptr;
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

std::string caps_text(uint64_t caps) {
  return fi_tostr(&caps, FI_TYPE_CAPS);
}

std::optional<Completion> poll(fid_cq *cq) {
  fi_cq_tagged_entry entry{};
  Completion done;
  const ssize_t n = fi_cq_readfrom(cq, &entry, 1, &done.source);
  if (n == -FI_EAGAIN) return {};
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
  const ssize_t m = fi_cq_readerr(cq, &error, 0);
  if (m != 1)
    throw std::runtime_error("fi_cq_read says -FI_EAVAIL, fi_cq_readerr " + std::to_string(m));
  done.context = error.op_context;
  done.flags = error.flags;
  done.len = error.len;
  done.buf = error.buf;
  done.data = error.data;
  done.tag = error.tag;
  done.olen = error.olen;
  done.err = error.err;
  done.prov_errno = error.prov_errno;
  return done;
}

// ---- one application ----

Node::Node(const Options &wanted, Node *sibling, const std::function<void(Node &)> &before_enable)
    : options(wanted) {
  info = find_info(options, FI_SOURCE);
  if (!info)
    throw std::runtime_error("fi_getinfo finds no " + stack() + " for " + caps_text(options.caps));
  if (sibling != nullptr) {
    fabric = sibling->fabric;
    domain = sibling->domain;
    av = sibling->av;
    srx = sibling->srx;
  }
  open_objects();
  must(fi_endpoint(domain, info.get(), ep.out(), this));
  bind();
  if (before_enable) before_enable(*this);
  must(fi_enable(ep));
}

void Node::open_objects() {
  if (domain == nullptr) {
    must(fi_fabric(info->fabric_attr, own_fabric.out(), nullptr));
    fabric = own_fabric;
    must(fi_domain(fabric, info.get(), own_domain.out(), nullptr));
    domain = own_domain;
    fi_av_attr attr{};
    attr.type = options.av_type != FI_AV_UNSPEC              ? options.av_type
                : info->domain_attr->av_type != FI_AV_UNSPEC ? info->domain_attr->av_type
                                                             : FI_AV_TABLE;
    must(fi_av_open(domain, &attr, own_av.out(), nullptr));
    av = own_av;
  }
  if (options.shared_receive && srx == nullptr) {
    must(fi_srx_context(domain, info->rx_attr, own_srx.out(), nullptr));
    srx = own_srx;
  }
  options.tx_cq.size = options.rx_cq.size = options.cq_size;
  must(fi_cq_open(domain, &options.tx_cq, tx_cq.out(), nullptr));
  if (!options.one_cq) must(fi_cq_open(domain, &options.rx_cq, rx_cq.out(), nullptr));
}

void Node::bind() {
  must(fi_ep_bind(ep, &av->fid, 0));
  if (options.shared_receive) must(fi_ep_bind(ep, &srx->fid, 0));
  if (options.one_cq) {
    must(fi_ep_bind(ep, tx_cq.fid(), FI_TRANSMIT | FI_RECV | options.tx_cq_flags));
  } else {
    must(fi_ep_bind(ep, tx_cq.fid(), FI_TRANSMIT | options.tx_cq_flags));
    must(fi_ep_bind(ep, rx_cq.fid(), FI_RECV | options.rx_cq_flags));
  }
}

fi_addr_t Node::insert(const std::string &address) {
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  const int n = fi_av_insert(av, address.data(), 1, &to, 0, nullptr);
  if (n != 1) throw std::runtime_error("fi_av_insert: " + error_text(n));
  return to;
}

std::string Node::name() const {
  char buffer[256];
  size_t size = sizeof buffer;
  must(fi_getname(ep.fid(), buffer, &size));
  return {buffer, size};
}

fid_cntr *Node::count(uint64_t what, fi_cntr_attr attr) {
  counters.emplace_back();
  must(fi_cntr_open(domain, &attr, counters.back().out(), nullptr));
  if (what != 0) must(fi_ep_bind(ep, counters.back().fid(), what));
  return counters.back();
}

fid_mr *Node::expose(void *buffer, size_t size, uint64_t access, uint64_t key) {
  regions.emplace_back();
  must(fi_mr_reg(domain, buffer, size, access, 0, key, 0, regions.back().out(), nullptr));
  return regions.back();
}

uint64_t Node::base_of(const void *buffer) const {
  return info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? reinterpret_cast<uint64_t>(buffer) : 0;
}

void Node::progress() {
  if (tx_cq) fi_cq_read(tx_cq, nullptr, 0);
  if (rx_cq) fi_cq_read(rx_cq, nullptr, 0);
}

// ---- several ----

Net::Net(size_t nodes, const Options &options, const std::function<void(Node &)> &before_enable) {
  for (size_t i = 0; i < nodes; ++i) add(options, before_enable);
}

Net::~Net() {
  while (!nodes_.empty()) nodes_.pop_back();
}

Node &Net::add(const Options &options, const std::function<void(Node &)> &before_enable,
               Node *sibling) {
  nodes_.push_back(std::make_unique<Node>(options, sibling, before_enable));
  asleep_.push_back(false);
  Node &fresh = *nodes_.back();
  addresses_.emplace_back();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    addresses_.back().push_back(fresh.insert(nodes_[i]->name()));
    if (nodes_[i].get() != &fresh) addresses_[i].push_back(nodes_[i]->insert(fresh.name()));
  }
  return fresh;
}

void Net::progress() {
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (!asleep_[i]) nodes_[i]->progress();
}

bool Net::until(const std::function<bool()> &predicate) {
  const Deadline deadline(patience());
  for (;;) {
    if (predicate()) return true;
    if (deadline.passed()) return false;
    progress();
    std::this_thread::yield();
  }
}

Completion Net::wait(fid_cq *cq) {
  std::optional<Completion> done;
  if (!until([&] { return (done = poll(cq)).has_value(); }))
    throw std::runtime_error("no completion came");
  return *done;
}

void Net::wait_count(fid_cntr *counter, uint64_t value) {
  if (!until([&] { return fi_cntr_read(counter) >= value; }))
    throw std::runtime_error("a counter stays at " + std::to_string(fi_cntr_read(counter)) +
                             " below " + std::to_string(value));
}

ssize_t Net::attempt(const std::function<ssize_t()> &operation) {
  ssize_t rc = 0;
  if (!until([&] { return (rc = operation()) != -FI_EAGAIN; }))
    throw std::runtime_error("-FI_EAGAIN for ever");
  return rc;
}

void Net::post(const std::function<ssize_t()> &operation) {
  must(attempt(operation));
}

void Net::settle() {
  // Loopback delivers within the sender's system call, so what was sent is there; a few rounds let
  // all act on it and answer.
  for (int i = 0; i < 100; ++i) progress();
}

void Net::exchange(size_t from, size_t to, size_t bytes, uint64_t tag) {
  std::vector<uint8_t> out = pattern(bytes, unsigned(tag)), in(bytes);
  Node &sender = (*this)[from], &receiver = (*this)[to];
  must(fi_trecv(receiver.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &in));
  post([&] {
    return fi_tsend(sender.ep, out.data(), out.size(), nullptr, at(from, to), tag, &out);
  });
  const Completion received = wait(receiver.receive_cq()), sent = wait(sender.tx_cq);
  EXPECT_EQ(received.err, 0) << fi_strerror(received.err);
  EXPECT_EQ(received.context, &in);
  EXPECT_EQ(received.len, bytes);
  EXPECT_EQ(sent.err, 0) << fi_strerror(sent.err);
  EXPECT_EQ(sent.context, &out);
  EXPECT_EQ(in, out);
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

std::vector<size_t> edges() {
  std::vector<size_t> all{0, 1, 8};
  for (size_t edge : {64, 128, 4096, 16384, 131072}) {
    all.push_back(edge - 1);
    all.push_back(edge);
    all.push_back(edge + 1);
  }
  // Headers share the buffers of the eager protocol with the payload.
  for (size_t edge : {16320, 16384 - 56, 1 << 20}) all.push_back(edge);
  return all;
}

}  // namespace weft::conformance::rdm
