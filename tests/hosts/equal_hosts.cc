// SPDX-License-Identifier: BSD-2-Clause
// One of two processes that have everything in common but their host: name, machine-id, process
// number, port. Each sends to the other, and writes to its memory, and says what became of it.
//
//   equal_hosts --stack tcp --type rdm --node 10.0.0.1 --service 7471 --self left --meet DIR
//   equal_hosts --stack tcp --type rdm --node 10.0.0.2 --service 7471 --self right --meet DIR
//
// They exchange their names by files in DIR. Each prints one line: "sent 8, failed 0, got 8, own
// 0", where "own" counts what it has said itself and received, or found in its memory; or "refused:
// ..." where its library does not let it speak to the other (exit status 3).
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <array>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr auto kLimit = std::chrono::seconds(60), kQuiet = std::chrono::seconds(10);
constexpr int kMessages = 8, kRefused = 3;
constexpr size_t kSize = 64;
constexpr uint64_t kKey = 7;

struct Settings {
  std::string stack, type = "rdm", node, service = "7471", self, meet;
  bool collective = false;
  std::string other() const { return self == "left" ? "right" : "left"; }
};

[[noreturn]] void die(const char *what, long rc) {
  std::fprintf(stderr, "%s: %s\n", what, fi_strerror(int(rc < 0 ? -rc : rc)));
  std::exit(1);
}
long must(const char *what, long rc) {
  if (rc < 0) die(what, rc);
  return rc;
}
[[noreturn]] void refused(const char *what, long rc) {
  std::printf("refused: %s: %s\n", what, fi_strerror(int(rc < 0 ? -rc : rc)));
  std::exit(kRefused);
}

class Process {
 public:
  explicit Process(Settings settings) : s_(std::move(settings)) {
    text_.fill(0);
    std::snprintf(text_.data(), text_.size(), "from %s", s_.self.c_str());
  }
  void run() {
    open_domain();
    s_.type == "msg" ? open_connections() : open_unconnected();
    exchange();
    std::printf("sent %d, failed %d, got %d, own %d\n", sent_, failed_, got_, own_);
  }

 private:
  using Message = std::array<char, kSize>;

  // ---- by files ----
  void tell(const std::string &what, const std::string &bytes) {
    const fs::path whole = fs::path(s_.meet) / (s_.self + "." + what), part = whole.string() + "~";
    std::ofstream(part, std::ios::binary) << bytes;
    fs::rename(part, whole);
  }
  bool has_told(const std::string &what) const {
    return fs::exists(fs::path(s_.meet) / (s_.other() + "." + what));
  }
  std::string hear(const std::string &what) {
    const auto end = Clock::now() + kLimit;
    while (!has_told(what)) {
      progress();
      if (Clock::now() > end) die("the other host", -FI_ETIMEDOUT);
    }
    std::ifstream file(fs::path(s_.meet) / (s_.other() + "." + what), std::ios::binary);
    return (std::stringstream() << file.rdbuf()).str();
  }

  // ---- objects ----
  void open_domain() {
    fi_info *const hints = fi_allocinfo();
    const bool datagrams = s_.type == "dgram";
    hints->ep_attr->type = s_.type == "msg" ? FI_EP_MSG : datagrams ? FI_EP_DGRAM : FI_EP_RDM;
    hints->caps = datagrams ? FI_MSG : FI_MSG | FI_RMA;
    if (s_.collective) hints->caps |= FI_COLLECTIVE;
    hints->fabric_attr->prov_name = strdup(s_.stack.c_str());
    hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED;
    if (!datagrams) hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    const int rc = fi_getinfo(FI_VERSION(1, 21), s_.node.c_str(), s_.service.c_str(), FI_SOURCE,
                              hints, &info_);
    if (rc != 0) refused("fi_getinfo", rc);
    fi_freeinfo(hints);
    must("fi_fabric", fi_fabric(info_->fabric_attr, &fabric_, nullptr));
    must("fi_domain", fi_domain(fabric_, info_, &domain_, nullptr));
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_MSG;
    must("fi_cq_open", fi_cq_open(domain_, &cq, &cq_, nullptr));
  }
  void enable(fid_ep *ep) {
    must("fi_ep_bind", fi_ep_bind(ep, &cq_->fid, FI_TRANSMIT | FI_RECV));
    must("fi_enable", fi_enable(ep));
    for (Message &one : received_) post(ep, one);
  }
  void post(fid_ep *ep, Message &message) {
    must("fi_recv", fi_recv(ep, message.data(), kSize, nullptr, FI_ADDR_UNSPEC, &message));
  }
  // The same key on both hosts.
  void expose(fid_ep *ep) {
    if (s_.type == "dgram") return;
    must("fi_mr_reg",
         fi_mr_reg(domain_, memory_.data(), kSize, FI_REMOTE_WRITE, 0, kKey, 0, &mr_, nullptr));
    if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) == 0) return;
    must("fi_mr_bind", fi_mr_bind(mr_, &ep->fid, 0));
    must("fi_mr_enable", fi_mr_enable(mr_));
  }
  void open_unconnected() {
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    must("fi_av_open", fi_av_open(domain_, &attr, &av_, nullptr));
    must("fi_endpoint", fi_endpoint(domain_, info_, &ep_, nullptr));
    must("fi_ep_bind", fi_ep_bind(ep_, &av_->fid, 0));
    enable(ep_);
    expose(ep_);
    std::string name(256, '\0');
    size_t size = name.size();
    must("fi_getname", fi_getname(&ep_->fid, name.data(), &size));
    name.resize(size);
    tell("name", name);
    const std::string other = hear("name");
    std::fprintf(stderr, "the names are %s\n", other == name ? "equal" : "different");
    const int rc = fi_av_insert(av_, other.data(), 1, &peer_, 0, nullptr);
    tell("inserted", "");
    hear("inserted");
    if (rc != 1) refused("fi_av_insert", rc < 0 ? rc : -FI_EADDRNOTAVAIL);
  }
  // Each connects to the other's port, which is its own number as well. What this one sends goes by
  // the connection that it has asked for, and the other's comes by the one that it has accepted.
  void open_connections() {
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    must("fi_eq_open", fi_eq_open(fabric_, &attr, &eq_, nullptr));
    must("fi_passive_ep", fi_passive_ep(fabric_, info_, &passive_, nullptr));
    must("fi_pep_bind", fi_pep_bind(passive_, &eq_->fid, 0));
    must("fi_listen", fi_listen(passive_));
    std::string name(256, '\0');
    size_t size = name.size();
    must("fi_getname", fi_getname(&passive_->fid, name.data(), &size));
    name.resize(size);
    tell("name", name);
    const std::string other = hear("name");
    fi_info *const any_port = fi_dupinfo(info_);
    std::free(any_port->src_addr);
    any_port->src_addr = nullptr;
    any_port->src_addrlen = 0;
    ep_ = endpoint(any_port);
    fi_freeinfo(any_port);
    expose(ep_);
    const int rc = fi_connect(ep_, other.data(), nullptr, 0);
    if (rc != 0) refused("fi_connect", rc);
    for (int connected = 0; connected < 2;) {
      std::array<char, sizeof(fi_eq_cm_entry) + 256> bytes;
      uint32_t event = 0;
      const ssize_t n =
          fi_eq_sread(eq_, &event, bytes.data(), bytes.size(), int(kLimit.count() * 1000), 0);
      if (n == -FI_EAVAIL) {
        fi_eq_err_entry failed{};
        fi_eq_readerr(eq_, &failed, 0);
        refused("the connection", failed.err);
      }
      must("fi_eq_sread", n);
      const auto *const entry = reinterpret_cast<const fi_eq_cm_entry *>(bytes.data());
      if (event == FI_CONNREQ) {
        accepted_ = endpoint(entry->info);
        must("fi_accept", fi_accept(accepted_, nullptr, 0));
        fi_freeinfo(entry->info);
      }
      connected += event == FI_CONNECTED;
    }
  }
  fid_ep *endpoint(fi_info *info) {
    fid_ep *ep = nullptr;
    must("fi_endpoint", fi_endpoint(domain_, info, &ep, nullptr));
    must("fi_ep_bind", fi_ep_bind(ep, &eq_->fid, 0));
    enable(ep);
    return ep;
  }

  // ---- messages ----
  void take(const char *bytes) {
    const std::string text(bytes, ::strnlen(bytes, kSize));
    if (text == text_.data()) ++own_;
    if (text == "from " + s_.other()) ++got_;
  }
  void progress() {
    if (cq_ == nullptr) return;
    fi_cq_msg_entry done;
    const ssize_t n = fi_cq_read(cq_, &done, 1);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry failed{};
      must("fi_cq_readerr", fi_cq_readerr(cq_, &failed, 0));
      if (failed.op_context == this) ++failed_;
    } else if (n == 1 && done.flags & FI_RECV) {
      take(static_cast<Message *>(done.op_context)->data());
    } else if (n == 1) {
      ++sent_;
    }
  }
  void start(auto post_one) {
    long rc = -FI_EAGAIN;
    for (const auto end = Clock::now() + kLimit; rc == -FI_EAGAIN && Clock::now() < end;) {
      rc = post_one();
      progress();
    }
    if (rc == 0) return;
    ++failed_;
    std::fprintf(stderr, "an operation is refused: %s\n", fi_strerror(int(-rc)));
  }
  void exchange() {
    const bool writes = s_.type != "dgram";
    tell("ready", "");
    hear("ready");
    for (int i = 0; i < kMessages; ++i)
      start([&] { return fi_send(ep_, text_.data(), kSize, nullptr, peer_, this); });
    if (writes)
      start([&] { return fi_write(ep_, text_.data(), kSize, nullptr, peer_, 0, kKey, this); });
    const int all = kMessages + writes;
    for (const auto end = Clock::now() + kLimit; sent_ + failed_ < all && Clock::now() < end;)
      progress();
    // What was sent in vain does not come.
    for (const auto end = Clock::now() + kQuiet; got_ < kMessages && Clock::now() < end;)
      progress();
    tell("done", "");
    hear("done");
    if (writes) take(memory_.data());
  }

  const Settings s_;
  fi_info *info_ = nullptr;
  fid_fabric *fabric_ = nullptr;
  fid_domain *domain_ = nullptr;
  fid_cq *cq_ = nullptr;
  fid_eq *eq_ = nullptr;
  fid_av *av_ = nullptr;
  fid_pep *passive_ = nullptr;
  fid_ep *ep_ = nullptr, *accepted_ = nullptr;
  fid_mr *mr_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::array<Message, 2 * kMessages> received_{};
  Message text_{}, memory_{};
  int sent_ = 0, failed_ = 0, got_ = 0, own_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
  Settings s;
  CLI::App app("one of two processes that have everything in common but their host");
  app.add_option("--stack", s.stack, "prov_name")->required();
  app.add_option("--type", s.type, "msg, rdm or dgram");
  app.add_option("--node", s.node, "the own address, or a NIC")->required();
  app.add_option("--service", s.service, "the own port, or PID; the same on both hosts");
  app.add_flag("--collective", s.collective, "ask for FI_COLLECTIVE");
  app.add_option("--self", s.self, "left or right")->required();
  app.add_option("--meet", s.meet, "a folder that both see")->required();
  CLI11_PARSE(app, argc, argv);
  Process(s).run();
  std::fflush(stdout);
  std::_Exit(0);
}
