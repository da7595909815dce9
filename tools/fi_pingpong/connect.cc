// SPDX-License-Identifier: BSD-2-Clause
// Meets the peer: a connection for FI_EP_MSG, an exchange of addresses for FI_EP_RDM and
// FI_EP_DGRAM.
#include <algorithm>
#include <cerrno>

#include "tools/fi_pingpong/ping_pong.h"

namespace weft::pingpong {
namespace {

std::string name_of(fid_t fid) {
  size_t length = 0;
  int ret = fi_getname(fid, nullptr, &length);
  if (ret != -FI_ETOOSMALL) {
    check(ret, "fi_getname");
  }
  std::string name(length, '\0');
  check(fi_getname(fid, name.data(), &length), "fi_getname");
  name.resize(std::min(length, name.size()));
  return name;
}

}  // namespace

void PingPong::meet_client() {
  // First everything that can fail on this side, then the port for the client.
  get_info({}, 0);
  if (options_.type == FI_EP_MSG) {
    open_passive_endpoint();
  } else {
    open_endpoint(info_.get());
  }
  control_.listen();
  control_.accept();
  options_.type == FI_EP_MSG ? accept_connection() : exchange_names();
}

void PingPong::meet_server() {
  control_.connect();
  uint32_t format = FI_FORMAT_UNSPEC;
  peer_name_ = control_.receive_name(&format);
  get_info(peer_name_, format);
  open_fabric();
  open_endpoint(info_.get());
  options_.type == FI_EP_MSG ? make_connection() : exchange_names();
}

void PingPong::accept_connection() {
  control_.send_name(name_of(&pep_->fid), info_->addr_format);
  fi_eq_cm_entry entry = {};
  wait_event(FI_CONNREQ, "FI_CONNREQ", &entry);
  const Info request(entry.info, &fi_freeinfo);
  try {
    open_endpoint(entry.info);
    check(fi_accept(ep_.get(), nullptr, 0), "fi_accept");
  } catch (...) {
    // Without a rejection the client would wait until its timeout.
    if (ep_ == nullptr) {
      fi_reject(pep_.get(), entry.info->handle, nullptr, 0);
    }
    throw;
  }
  wait_event(FI_CONNECTED, "FI_CONNECTED", &entry);
  debug("connection accepted");
}

void PingPong::make_connection() {
  check(fi_connect(ep_.get(), info_->dest_addr, nullptr, 0), "fi_connect");
  fi_eq_cm_entry entry = {};
  wait_event(FI_CONNECTED, "FI_CONNECTED", &entry);
  debug("connected");
}

void PingPong::wait_event(uint32_t wanted, const char *name, fi_eq_cm_entry *entry) {
  const Deadline deadline(options_.timeout);
  while (true) {
    uint32_t event = 0;
    const ssize_t ret = fi_eq_sread(eq_.get(), &event, entry, sizeof(*entry), 100, 0);
    if (ret >= 0) {
      if (event == wanted) {
        return;
      }
      if (event == FI_CONNREQ) {
        fi_freeinfo(entry->info);
      }
      fail(EPROTO, "expected the event %s, got %s", name, fi_tostr(&event, FI_TYPE_EQ_EVENT));
    }
    if (ret == -FI_EAVAIL) {
      throw_eq_error(name);
    }
    if (ret != -FI_EAGAIN && ret != -FI_EINTR && ret != -FI_ETIMEDOUT) {
      check(ret, "fi_eq_sread");
    }
    const Control::State peer = control_.peek();
    if (peer.closed) {
      fail(ECONNABORTED, "the peer went away while this side waited for %s", name);
    }
    if (peer.pending && wanted == FI_CONNREQ) {
      fail(EPROTO, "the client does not connect an endpoint; both sides need -e msg");
    }
    if (deadline.passed()) {
      fail(ETIMEDOUT, "no %s within %d s", name, options_.timeout.count());
    }
  }
}

void PingPong::throw_eq_error(const char *name) {
  fi_eq_err_entry error = {};
  check(fi_eq_readerr(eq_.get(), &error, 0), "fi_eq_readerr");
  const char *detail = fi_eq_strerror(eq_.get(), error.prov_errno, error.err_data, nullptr, 0);
  fail(error.err, "waiting for %s: %s (provider: %s)", name, fi_strerror(error.err),
       detail != nullptr ? detail : "");
}

void PingPong::exchange_names() {
  const std::string name = name_of(&ep_->fid);
  control_.send_name(name, info_->addr_format);
  if (options_.is_server()) {
    uint32_t format = FI_FORMAT_UNSPEC;
    peer_name_ = control_.receive_name(&format);
    if (format != info_->addr_format) {
      // Copies, because fi_tostr has one buffer.
      const std::string theirs = fi_tostr(&format, FI_TYPE_ADDR_FORMAT);
      const std::string ours = fi_tostr(&info_->addr_format, FI_TYPE_ADDR_FORMAT);
      fail(EPROTO,
           "the client has addresses of format %s, this side %s; give "
           "both sides the same -p and -d",
           theirs, ours);
    }
  }
  const int inserted =
      check(fi_av_insert(av_.get(), peer_name_.data(), 1, &peer_, 0, nullptr), "fi_av_insert");
  if (inserted != 1) {
    fail(EADDRNOTAVAIL, "fi_av_insert: the provider did not take the peer's address");
  }
}

}  // namespace weft::pingpong
