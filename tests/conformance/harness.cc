// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/harness.h"

#include <stdexcept>
#include <thread>

namespace weft::conformance {

Info options_info(const Options &options, const char *service, uint64_t flags) {
  return get_info(options.node.c_str(), service, flags, make_hints(options).get());
}

std::optional<Event> poll_eq(fid_eq *eq) {
  alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 512] = {};
  uint32_t type = 0;
  const ssize_t n = fi_eq_read(eq, &type, buffer, sizeof buffer, 0);
  if (n == -FI_EAGAIN) return {};
  Event event;
  if (n == -FI_EAVAIL) {
    fi_eq_err_entry error{};
    char data[512];
    error.err_data = data;
    error.err_data_size = sizeof data;
    const ssize_t m = fi_eq_readerr(eq, &error, 0);
    if (m < 0)
      throw std::runtime_error("fi_eq_read says -FI_EAVAIL, fi_eq_readerr " + error_text(m));
    event.fid = error.fid;
    event.err = error.err;
    event.data.assign(static_cast<const char *>(error.err_data), error.err_data_size);
    return event;
  }
  must(n);
  event.type = type;
  auto *entry = reinterpret_cast<fi_eq_cm_entry *>(buffer);
  event.fid = entry->fid;
  if (type == FI_CONNREQ || type == FI_CONNECTED || type == FI_SHUTDOWN) {
    event.info.reset(entry->info);
    event.data.assign(buffer + sizeof *entry, size_t(n) - sizeof *entry);
  }
  return event;
}

// ---- sides ----

void Side::open(const fi_info *from) {
  open_fabric(from);
  open_queues();
}

void Side::make_unbound_endpoint(fi_info *from) {
  must(fi_endpoint(domain, from, ep.out(), this));
}

void Side::make_endpoint(fi_info *from) {
  make_unbound_endpoint(from);
  bind_queues();
  if (before_enable) before_enable(*this);
  must(fi_enable(ep));
}

std::string Side::peer() const {
  return address_of([this](void *buffer, size_t *size) { return fi_getpeer(ep, buffer, size); });
}

namespace {
Info info_at(Options options, const std::string &node) {
  if (!node.empty()) options.node = node;
  return options_info(options, nullptr, FI_SOURCE);
}
}  // namespace

Listener::Listener(Side &side, const std::string &node)
    : Listener(side, *info_at(side.options, node)) {}

Listener::Listener(Side &side, const fi_info &from) : info(fi_dupinfo(&from)) {
  must(fi_passive_ep(side.fabric, info.get(), pep.out(), this));
  must(fi_pep_bind(pep, side.eq.fid(), 0));
  must(fi_listen(pep));
}

std::string Listener::address() const {
  return address_of(
      [this](void *buffer, size_t *size) { return fi_getname(pep.fid(), buffer, size); });
}

namespace {

struct Several : Driver {
  explicit Several(std::initializer_list<Side *> sides) : sides(sides) {}
  void progress() override {
    for (Side *side : sides) side->progress();
  }
  std::initializer_list<Side *> sides;
};

}  // namespace

bool until(const std::function<bool()> &predicate, std::initializer_list<Side *> sides,
           std::chrono::milliseconds time) {
  return Several(sides).until(predicate, time);
}

Event wait_event(fid_eq *eq, std::initializer_list<Side *> sides) {
  std::optional<Event> event;
  if (!until([&] { return (event = poll_eq(eq)).has_value(); }, sides))
    throw std::runtime_error("no event came");
  return std::move(*event);
}

Event next_request(Side &passive, std::initializer_list<Side *> sides) {
  Event event = wait_event(passive.eq, sides);
  if (event.type != FI_CONNREQ)
    throw std::runtime_error("instead of FI_CONNREQ came " + std::to_string(event.type));
  return event;
}

uint64_t hear(int socket, std::initializer_list<Side *> sides) {
  if (!until([&] { return can_hear(socket); }, sides))
    throw std::runtime_error("the other process says nothing");
  return hear(socket);
}

void in_two_threads(const std::function<void()> &here, const std::function<void()> &there) {
  const auto what_of = [](const std::function<void()> &body) -> std::string {
    try {
      body();
    } catch (const std::exception &error) {
      return error.what();
    }
    return "";
  };
  std::string other_failure;
  std::thread other([&] { other_failure = what_of(there); });
  EXPECT_EQ(what_of(here), "");
  other.join();
  EXPECT_EQ(other_failure, "");
}

Pair::Pair(const Options &active, const Options &passive,
           const std::function<void(Side &)> &before_enable)
    : a(active), b(passive) {
  a.before_enable = b.before_enable = before_enable;
  b.open(options_info(passive, nullptr, FI_SOURCE).get());
  listener = std::make_unique<Listener>(b);
  const std::string address = listener->address();
  const Info info = options_info(active);
  a.open(info.get());
  a.make_endpoint(a.info.get());
  must(fi_connect(a.ep, address.data(), nullptr, 0));
  const Event request = next_request(b, {&a, &b});
  b.make_endpoint(request.info.get());
  must(fi_accept(b.ep, nullptr, 0));
  wait_event(a.eq, FI_CONNECTED);
  wait_event(b.eq, FI_CONNECTED);
}

void Pair::progress() {
  a.progress();
  b.progress();
}

Event Pair::wait(fid_eq *eq) {
  return conformance::wait_event(eq, {&a, &b});
}

Event Pair::wait_event(fid_eq *eq, uint32_t type) {
  Event event = wait(eq);
  if (event.err != 0)
    throw std::runtime_error("instead of an event came the error " + error_text(event.err));
  if (event.type != type)
    throw std::runtime_error("instead of event " + std::to_string(type) + " came " +
                             std::to_string(event.type));
  return event;
}

}  // namespace weft::conformance
