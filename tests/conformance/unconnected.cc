// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/unconnected.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <thread>

#include "tests/conformance/text_addresses.h"

namespace weft::conformance::unconnected {

Info ask(const Options &options, const std::function<void(fi_info &)> &change, const char *node,
         const char *service, uint64_t flags) {
  Info hints = make_hints(options), list;
  if (change) change(*hints);
  const int rc = try_info(list, node, service, flags, hints.get());
  if (rc != -FI_ENODATA) must(rc);
  return list;
}

bool offers(Options options, uint64_t caps) {
  options.caps = caps;
  return find_info(options) != nullptr;
}

Node::Node(const Options &wanted, Node *sibling, const std::function<void(Node &)> &before_enable)
    : Application(wanted) {
  const Info found = find_info(options, FI_SOURCE, options.api);
  if (!found)
    throw std::runtime_error("fi_getinfo finds no " + stack() + " for " + caps_text(options.caps));
  if (sibling == nullptr) {
    open_fabric(found.get());
    fi_av_attr attr{};
    attr.type = options.av_type != FI_AV_UNSPEC              ? options.av_type
                : info->domain_attr->av_type != FI_AV_UNSPEC ? info->domain_attr->av_type
                                                             : FI_AV_TABLE;
    attr.flags = options.av_flags;
    if (!options.av_name.empty()) attr.name = options.av_name.c_str();
    must(fi_av_open(domain, &attr, av.out(), nullptr));
    av_names = static_cast<const fi_addr_t *>(attr.map_addr);
    for (const std::string &key : options.vector_keys) {
      keys.push_back(FI_ADDR_NOTAVAIL);
      must(fi_av_insert_auth_key(av, key.data(), key.size(), &keys.back(), 0));
    }
  } else {
    info.reset(fi_dupinfo(found.get()));
    fabric = Handle<fid_fabric>::lent(sibling->fabric);
    domain = Handle<fid_domain>::lent(sibling->domain);
    av = Handle<fid_av>::lent(sibling->av);
    keys = sibling->keys;
    if (options.shared_receive) srx = Handle<fid_ep>::lent(sibling->srx);
  }
  open_queues();
  must(fi_endpoint(domain, info.get(), ep.out(), this));
  bind_queues();
  if (before_enable) before_enable(*this);
  must(fi_enable(ep));
}

fi_addr_t Node::insert(const std::string &address, size_t key) {
  fi_addr_t to = keys.empty() ? FI_ADDR_NOTAVAIL : keys.at(key);
  const int n = insert_address(av, address, &to, keys.empty() ? 0 : FI_AUTH_KEY);
  if (n != 1) throw std::runtime_error("fi_av_insert: " + error_text(n));
  return to;
}

Net::Net(size_t nodes, const Options &options, const std::function<void(Node &)> &before_enable) {
  for (size_t i = 0; i < nodes; ++i) add(options, before_enable);
}

Net::~Net() {
  if (stack().find("ofi_rxd") != std::string::npos) close_endpoints();
  while (!nodes_.empty()) nodes_.pop_back();
}

void Net::close_endpoints() {
  std::map<fid_domain *, std::vector<Node *>> domains;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if ((*node)->options.rx_owner != nullptr) return;  // queues of other domains
    domains[(*node)->domain].push_back(node->get());
  }
  std::vector<std::thread> threads;
  for (const auto &[domain, nodes] : domains) {
    threads.emplace_back([&nodes = nodes] {
      for (Node *node : nodes) {
        node->regions.clear();
        node->ep.reset();
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
}

Node &Net::add(const Options &options, const std::function<void(Node &)> &before_enable,
               Node *sibling) {
  nodes_.push_back(std::make_unique<Node>(options, sibling, before_enable));
  asleep_.push_back(false);
  Node &fresh = *nodes_.back();
  addresses_.emplace_back();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    // Both use the same key, so that each knows the other as the source of its messages.
    const size_t key = (i + nodes_.size() - 1) % std::max<size_t>(fresh.keys.size(), 1);
    addresses_.back().push_back(fresh.insert(nodes_[i]->name(), key));
    if (nodes_[i].get() != &fresh) addresses_[i].push_back(nodes_[i]->insert(fresh.name(), key));
  }
  return fresh;
}

void Net::progress() {
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (!asleep_[i]) nodes_[i]->progress();
}

void Net::check_exchange(size_t from, size_t to, const std::vector<uint8_t> &out,
                         const std::vector<uint8_t> &in) {
  const Completion received = wait((*this)[to].receive_cq()), sent = wait((*this)[from].tx_cq);
  EXPECT_EQ(received.err, 0) << fi_strerror(received.err);
  EXPECT_EQ(received.context, &in);
  EXPECT_EQ(received.len, out.size());
  EXPECT_EQ(sent.err, 0) << fi_strerror(sent.err);
  EXPECT_EQ(sent.context, &out);
  EXPECT_EQ(in, out);
}

}  // namespace weft::conformance::unconnected
