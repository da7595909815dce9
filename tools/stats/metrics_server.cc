// SPDX-License-Identifier: BSD-2-Clause
#include "tools/stats/metrics_server.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace weft::stats {
namespace {

constexpr int kBacklog = 128;

std::string response(const char *status, const char *type, const std::string &text) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                      "\r\nContent-Length: ", text.size(), "\r\nConnection: close\r\n\r\n", text);
}

// The answer to what needs no metrics.
std::string plain_response(HttpAsk ask) {
  constexpr const char *kText = "text/plain";
  switch (ask) {
    case HttpAsk::kIndex:
      return response("200 OK", kText, "weft-exporter: see /metrics\n");
    case HttpAsk::kUnknown:
      return response("404 Not Found", kText, "weft-exporter: see /metrics\n");
    case HttpAsk::kOther:
      return response("405 Method Not Allowed\r\nAllow: GET", kText, "only GET\n");
    default:
      return response("400 Bad Request", kText, "no HTTP request\n");
  }
}

}  // namespace

HttpAsk parse_ask(std::string_view received) {
  const size_t end = received.find("\r\n\r\n");
  if (end == std::string_view::npos)
    return received.size() < MetricsServer::kMaxRequest ? HttpAsk::kNotWhole : HttpAsk::kNoHttp;
  const std::string_view line = received.substr(0, received.find("\r\n"));
  const size_t target = line.find(' ');
  const size_t version = line.rfind(' ');
  if (target == std::string_view::npos || target == version ||
      !line.substr(version + 1).starts_with("HTTP/1."))
    return HttpAsk::kNoHttp;
  if (line.substr(0, target) != "GET") return HttpAsk::kOther;
  std::string_view path = line.substr(target + 1, version - target - 1);
  path = path.substr(0, path.find('?'));
  return path == "/metrics" ? HttpAsk::kMetrics : path == "/" ? HttpAsk::kIndex : HttpAsk::kUnknown;
}

Result<int> MetricsServer::listen(int port) {
  listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (listener_.get() < 0 ||
      ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(listener_.get(), reinterpret_cast<sockaddr *>(&address), size) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr *>(&address), &size) != 0) {
    const int code = errno;
    return fail(code, "port %d of 127.0.0.1 is not to be had (%s): choose another with --port",
                port, std::strerror(code));
  }
  return int(ntohs(address.sin_port));
}

Result<void> MetricsServer::serve(int stop) {
  std::vector<pollfd> fds;
  for (;;) {
    const bool pauses = pause_until_ > absl::Now();
    fds.assign({{stop, POLLIN, 0}, {pauses ? -1 : listener_.get(), POLLIN, 0}});
    for (const Client &client : clients_)
      fds.push_back(
          {client.socket.get(), short(client.phase == Phase::kTakes ? POLLOUT : POLLIN), 0});
    const absl::Duration left = next_deadline() - absl::Now();
    const int ms = left == absl::InfiniteDuration()
                       ? -1
                       : int(absl::ToInt64Milliseconds(std::max(left, absl::ZeroDuration())) + 1);
    if (::poll(fds.data(), fds.size(), ms) < 0 && errno != EINTR)
      return fail(FI_EIO, "poll: %s", std::strerror(errno));
    if (fds[0].revents != 0) return {};
    const absl::Time now = absl::Now();
    size_t at = 2;
    for (Client &client : clients_)
      if (fds[at++].revents != 0) step(client, now);
    answer_all();
    drop_late(now);  // of those that had not spoken before the answers took their time
    if (!pauses) accept_more(absl::Now());
  }
}

void MetricsServer::step(Client &client, absl::Time now) {
  if (client.phase == Phase::kTakes)
    write(client, now);
  else
    read(client, now);
}

// A client that has ended, or has nothing more to get, is past its time at once.
void MetricsServer::read(Client &client, absl::Time now) {
  char piece[4096];
  const ssize_t got = ::recv(client.socket.get(), piece, sizeof piece, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    client.until = absl::InfinitePast();
    return;
  }
  client.heard = now;
  if (client.phase == Phase::kLeaves) return;  // what it says behind its request
  client.bytes.append(piece, size_t(got));
  client.ask = parse_ask(client.bytes);
  if (client.ask != HttpAsk::kNotWhole) client.phase = Phase::kWaits;
}

void MetricsServer::write(Client &client, absl::Time now) {
  const ssize_t put = ::send(client.socket.get(), client.bytes.data(), client.bytes.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (put < 0) {
    client.until = absl::InfinitePast();
    return;
  }
  client.heard = now;
  client.bytes.erase(0, size_t(put));
  if (!client.bytes.empty()) return;
  // Closing with unread bytes would reset the connection, and the client might lose the answer.
  ::shutdown(client.socket.get(), SHUT_WR);
  client.phase = Phase::kLeaves;
}

void MetricsServer::answer_all() {
  std::string metrics;
  for (Client &client : clients_) {
    if (client.phase != Phase::kWaits) continue;
    if (client.ask != HttpAsk::kMetrics) {
      client.bytes = plain_response(client.ask);
    } else {
      if (metrics.empty()) {
        const Result<std::string> text = metrics_();
        metrics =
            text ? response("200 OK", "text/plain; version=0.0.4; charset=utf-8", *text)
                 : response("500 Internal Server Error", "text/plain", text.error().text + "\n");
      }
      client.bytes = metrics;
    }
    client.phase = Phase::kTakes;
    const absl::Time now = absl::Now();
    client.heard = now;
    client.until = now + options_.patience;
    write(client, now);
  }
}

void MetricsServer::drop_late(absl::Time now) {
  clients_.remove_if([now](const Client &client) { return client.until <= now; });
}

// Who has its answer goes before those that still want one: its end may not have been seen yet.
MetricsServer::Clients::iterator MetricsServer::most_silent() {
  return std::ranges::min_element(clients_, {}, [](const Client &client) {
    return std::pair(client.phase != Phase::kLeaves, client.heard);
  });
}

// Whether one more client may come.
bool MetricsServer::make_room(absl::Time now) {
  if (clients_.size() < options_.most_clients) return true;
  const auto silent = most_silent();
  if (now - silent->heard < options_.grace) {
    pause_until_ = silent->heard + options_.grace;
    return false;
  }
  clients_.erase(silent);
  return true;
}

void MetricsServer::accept_more(absl::Time now) {
  for (size_t n = 0; n < options_.most_clients; ++n) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 0) != 1 || !make_room(now)) return;
    sdk::UniqueFd socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      // Without descriptors the client stays in the kernel's queue.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        pause_until_ = now + options_.grace;
      return;
    }
    clients_.push_back(
        {.socket = std::move(socket), .bytes = {}, .heard = now, .until = now + options_.patience});
  }
}

absl::Time MetricsServer::next_deadline() const {
  absl::Time next = pause_until_ > absl::Now() ? pause_until_ : absl::InfiniteFuture();
  for (const Client &client : clients_) next = std::min(next, client.until);
  return next;
}

}  // namespace weft::stats
