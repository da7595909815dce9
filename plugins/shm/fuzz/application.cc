// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/base/info.h"
#include "plugins/shm/domain.h"
#include "plugins/shm/fabric.h"
#include "plugins/shm/fuzz/world.h"
#include "tests/fuzz/core_services.h"

namespace weft::shm::fuzz {
namespace {

constexpr size_t kRegion = 4096;
constexpr size_t kMostBuffers = 64;

void must(ssize_t rc) {
  FUZZ_CHECK(rc == 0);
}

}  // namespace

Application::Application() : registered_(kRegion, 7) {
  instance_.magic = WEFT_INSTANCE_MAGIC;
  instance_.struct_size = sizeof instance_;
  instance_.core = &weft::fuzz::kFuzzCore;
  instance_.stack = "shm";
  info_ = alloc_info();
  info_->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV;
  info_->addr_format = FI_ADDR_STR;
  info_->ep_attr->type = FI_EP_RDM;
  info_->tx_attr->size = 16;
  info_->rx_attr->size = 16;
  info_->domain_attr->threading = FI_THREAD_SAFE;
  info_->domain_attr->data_progress = info_->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info_->domain_attr->resource_mgmt = FI_RM_ENABLED;
  const Settings settings{.geometry = {.lines = 64, .bytes = Geometry::kLeastBytes},
                          .max_saved_per_peer = 64 << 10,
                          .max_saved = 256 << 10,
                          .max_unnamed_peers = 4,
                          .close_linger_ns = 0};
  fi_fabric_attr attr{};
  attr.api_version = FI_VERSION(2, 6);
  static const auto numbers = std::make_shared<std::atomic<unsigned>>(0);
  fabric_ = Fabric::open(&instance_, settings, attr, nullptr, numbers).value();
  must(fi_domain(fabric_, info_, &domain_, nullptr));
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  must(fi_av_open(domain_, &av_attr, &av_, nullptr));
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  cq_attr.size = 16;
  must(fi_cq_open(domain_, &cq_attr, &cq_, nullptr));
  must(fi_cq_open(domain_, &cq_attr, &friends_cq_, nullptr));
  must(fi_mr_reg(domain_, registered_.data(), kRegion, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0,
                 &region_, nullptr));
  victim_ = open_endpoint(cq_);
  friend_ = open_endpoint(friends_cq_);
  char text[128];
  size_t size = sizeof text;
  must(fi_getname(&friend_->fid, text, &size));
  const char *pointer = text;
  FUZZ_CHECK(fi_av_insert(av_, &pointer, 1, &to_friend_, 0, nullptr) == 1);
  size = sizeof text;
  must(fi_getname(&victim_->fid, text, &size));
  name_ = sdk::read_address(FI_ADDR_STR, text).value();
}

fid_ep *Application::open_endpoint(fid_cq *cq) {
  fid_ep *ep = nullptr;
  must(fi_endpoint(domain_, info_, &ep, nullptr));
  must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
  must(fi_ep_bind(ep, &av_->fid, 0));
  must(fi_enable(ep));
  return ep;
}

Application::~Application() {
  for (struct fid *fid : {&victim_->fid, &friend_->fid, &region_->fid, &cq_->fid, &friends_cq_->fid,
                          &av_->fid, &domain_->fid, &fabric_->fid})
    must(fi_close(fid));
  free_info(info_);
}

void Application::introduce(const sdk::Address &hostile) {
  const std::string text = sdk::format_address_string(hostile);
  const char *pointer = text.c_str();
  FUZZ_CHECK(fi_av_insert(av_, &pointer, 1, &to_hostile_, 0, nullptr) == 1);
}

// On the heap and of the exact size, so that a sanitizer sees one byte too many. It lives on.
Application::Buffer &Application::buffer(size_t size) {
  Buffer &made = buffers_.emplace_back();
  made.bytes = std::make_unique<uint8_t[]>(size);
  made.size = size;
  return made;
}

void Application::post(Bytes &input) {
  if (buffers_.size() >= kMostBuffers) return;
  const uint8_t how = input.byte();
  Buffer &to = buffer(size_t(input.size() % 40'000));
  const fi_addr_t source = how & 1 ? to_hostile_ : FI_ADDR_UNSPEC;
  if (how & 2) {
    (void)fi_recv(victim_, to.bytes.get(), to.size, nullptr, source, &to);
  } else if (how & 4) {
    fi_msg message{};
    const iovec iov{to.bytes.get(), to.size};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = source;
    (void)fi_recvmsg(victim_, &message, FI_MULTI_RECV);
  } else {
    (void)fi_trecv(victim_, to.bytes.get(), to.size, nullptr, source, input.byte() % 4,
                   how & 8 ? UINT64_MAX : 0, &to);
  }
}

void Application::send(Bytes &input) {
  if (buffers_.size() >= kMostBuffers) return;
  const uint8_t how = input.byte();
  Buffer &from = buffer(size_t(input.size() % 40'000));
  fi_msg_tagged message{};
  const iovec iov{from.bytes.get(), from.size};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = to_hostile_;
  message.tag = how % 4;
  const uint64_t flags = (how & 16 ? FI_DELIVERY_COMPLETE : 0) | (how & 32 ? FI_FENCE : 0) |
                         (how & 64 ? FI_REMOTE_CQ_DATA : 0) |
                         (how & 128 && from.size <= 4096 ? FI_INJECT : 0);
  (void)fi_tsendmsg(victim_, &message, flags | FI_COMPLETION);
}

void Application::access(Bytes &input) {
  if (buffers_.size() >= kMostBuffers) return;
  const uint8_t how = input.byte();
  Buffer &own = buffer(size_t(input.size() % 40'000));
  switch (how % 3) {
    case 0:
      (void)fi_write(victim_, own.bytes.get(), own.size, nullptr, to_hostile_, 0, 1, &own);
      return;
    case 1:
      (void)fi_read(victim_, own.bytes.get(), own.size, nullptr, to_hostile_, 0, 1, &own);
      return;
    default: {
      const size_t count = std::min<size_t>(own.size / 8, 256);
      Buffer &result = buffer(count * 8);
      (void)fi_fetch_atomic(victim_, own.bytes.get(), count, nullptr, result.bytes.get(), nullptr,
                            to_hostile_, 0, 1, FI_UINT64, FI_SUM, &own);
    }
  }
}

void Application::cancel(Bytes &input) {
  if (!buffers_.empty()) (void)fi_cancel(&victim_->fid, &buffers_[input.byte() % buffers_.size()]);
}

bool Application::drain(fid_cq *cq, const void *wanted) {
  fi_cq_tagged_entry entry;
  const ssize_t n = fi_cq_read(cq, &entry, 1);
  if (n == 1) return entry.op_context == wanted;
  if (n == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    FUZZ_CHECK(fi_cq_readerr(cq, &error, 0) == 1);
    FUZZ_CHECK(error.err > 0);
  }
  return false;
}

void Application::poll(int reads) {
  for (int i = 0; i < reads; ++i) {
    drain(cq_, nullptr);
    drain(friends_cq_, nullptr);
  }
}

void Application::check_friends() {
  static constexpr char kText[] = "how are you";
  char in[sizeof kText] = {};
  must(fi_trecv(friend_, in, sizeof in, nullptr, FI_ADDR_UNSPEC, 99, 0, in));
  ssize_t rc = -FI_EAGAIN;
  bool arrived = false;
  for (int i = 0; i < 100'000 && !arrived; ++i) {
    if (rc == -FI_EAGAIN) rc = fi_tinject(victim_, kText, sizeof kText, to_friend_, 99);
    drain(cq_, nullptr);
    arrived = drain(friends_cq_, in);
  }
  FUZZ_CHECK(rc == 0);
  FUZZ_CHECK(arrived, "a friend is not reached");
  FUZZ_CHECK(std::memcmp(in, kText, sizeof in) == 0);
}

}  // namespace weft::shm::fuzz
