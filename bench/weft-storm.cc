// SPDX-License-Identifier: BSD-2-Clause
//
// weft-storm: many endpoints, in a few processes, send to one endpoint at the same moment. It
// prints the time, the memory, the errors, and how long closing takes. It uses the public C API
// only: the library under test is the libfabric.so.1 that the loader finds, and its path is
// printed. `bench/storm` runs it on every stack, weft beside stock.

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <stdio.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench.h"
#include "control.h"
#include "fabric_node.h"
#include "memory.h"
#include "party.h"

namespace weft::bench {
namespace {

using nlohmann::json;

constexpr size_t kReceives = 1024;  // posted receives of the endpoint that all send to
constexpr uint64_t kTag = 0x73746f726d;

struct Options : PartyOptions {
  uint32_t endpoints = 1000;
  uint32_t messages = 10;
  uint32_t processes = 4;
  size_t size = 64;
  bool gone = false;
};

// The process with the endpoint that all others send to.
void run_receiver(const Options &options, Control &control) {
  need_files(3 * options.endpoints + 64);
  Party party(options, 1);
  const uint64_t total = uint64_t(options.endpoints) * options.messages;
  char *memory = party.allocate(kReceives * options.size);
  std::vector<fi_context2> contexts(kReceives);
  const auto post = [&](size_t i) {
    const ssize_t rc = fi_trecv(party.ep(0), memory + i * options.size, options.size, party.desc(),
                                FI_ADDR_UNSPEC, kTag, 0, &contexts[i]);
    if (rc != 0 && rc != -FI_EAGAIN) must("fi_trecv", rc);
    return rc == 0;
  };
  std::deque<size_t> idle;
  for (size_t i = 0; i < kReceives; ++i) {
    if (!post(i)) idle.push_back(i);
  }
  const std::string name = party.name();
  const uint64_t before = resident_bytes();
  control.send(
      {{"address", std::vector<uint8_t>(name.begin(), name.end())},
       {"library", {{"path", loaded_library().path}, {"version", loaded_library().version}}}});
  control.receive(options.timeout);
  const uint64_t start = now_ns();
  std::vector<uint32_t> next(options.endpoints, 0);
  uint64_t received = 0, wrong = 0;
  bool told = false;
  std::map<std::string, uint64_t> errors;
  const auto turn = [&] {
    fi_cq_tagged_entry entries[32];
    const ssize_t n = fi_cq_read(party.cq(), entries, 32);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      if (fi_cq_readerr(party.cq(), &error, 0) == 1) ++errors[fi_strerror(error.err)];
    }
    for (ssize_t i = 0; i < n; ++i) {
      const auto at =
          static_cast<size_t>(static_cast<fi_context2 *>(entries[i].op_context) - contexts.data());
      uint32_t who = 0, number = 0;
      memcpy(&who, memory + at * options.size, sizeof who);
      memcpy(&number, memory + at * options.size + sizeof who, sizeof number);
      // The messages of a sender arrive once and in order.
      if (entries[i].len != options.size || who >= options.endpoints || number != next[who]++)
        ++wrong;
      ++received;
      idle.push_back(at);
    }
    while (!idle.empty() && post(idle.front())) idle.pop_front();
    if (received == total && !told) {
      told = true;
      control.send({{"seconds", seconds_since(start)}, {"received", received}});
    }
  };
  until(options, control, turn);
  const uint64_t after = resident_bytes();
  json report = {{"received", received},
                 {"wrong", wrong},
                 {"errors", errors},
                 {"memory_per_peer", (double(after) - double(before)) / options.endpoints}};
  report["close"] = party.close();
  control.send(report);
}

// A process with `count` of the endpoints that send; `first` is the number of the first.
void run_senders(const Options &options, Control &control, uint32_t first, uint32_t count) {
  need_files(4 * count + 64);
  const json start_with = control.receive(options.timeout);
  const auto bytes = start_with.at("address").get<std::vector<uint8_t>>();
  const uint64_t before = resident_bytes();
  const uint64_t opening = now_ns();
  Party party(options, count);
  const fi_addr_t to = party.insert(std::string(bytes.begin(), bytes.end()));
  char *memory = party.allocate(count * options.size);
  const double open_s = seconds_since(opening);
  const uint64_t open_memory = resident_bytes();
  control.send({{"ready", true}});
  control.receive(options.timeout);
  struct Sender {
    fi_context2 context;
    uint32_t sent = 0;
  };
  std::vector<Sender> senders(count);
  std::deque<uint32_t> due;
  for (uint32_t i = 0; i < count; ++i) due.push_back(i);
  std::map<std::string, uint64_t> errors;
  uint32_t ended = 0;
  const uint64_t start = now_ns();
  bool told = false;
  const auto turn = [&] {
    for (size_t tries = due.size(); tries > 0; --tries) {
      const uint32_t i = due.front();
      due.pop_front();
      const uint32_t who = first + i;
      memcpy(memory + i * options.size, &who, sizeof who);
      memcpy(memory + i * options.size + sizeof who, &senders[i].sent, sizeof senders[i].sent);
      const ssize_t rc = fi_tsend(party.ep(i), memory + i * options.size, options.size,
                                  party.desc(), to, kTag, &senders[i].context);
      if (rc == -FI_EAGAIN) {
        due.push_back(i);
      } else if (rc != 0) {
        ++errors[absl::StrCat("fi_tsend: ", fi_strerror(static_cast<int>(-rc)))];
        ++ended;
      }
    }
    fi_cq_tagged_entry entries[32];
    const ssize_t n = fi_cq_read(party.cq(), entries, 32);
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error = {};
      if (fi_cq_readerr(party.cq(), &error, 0) == 1) {
        ++errors[fi_strerror(error.err)];
        ++ended;
      }
    }
    for (ssize_t k = 0; k < n; ++k) {
      const auto i =
          static_cast<uint32_t>(static_cast<Sender *>(entries[k].op_context) - senders.data());
      if (++senders[i].sent == options.messages) {
        ++ended;
      } else {
        due.push_back(i);
      }
    }
    if (ended == count && !told) {
      told = true;
      control.send({{"seconds", seconds_since(start)}});
    }
  };
  until(options, control, turn);
  uint64_t sent = 0;
  for (const Sender &sender : senders) sent += sender.sent;
  json report = {{"sent", sent},
                 {"errors", errors},
                 {"open_s", open_s},
                 {"memory", double(resident_bytes()) - double(before)},
                 {"memory_open", double(open_memory) - double(before)}};
  report["close"] = party.close();
  control.send(report);
}

// What the storm brought, beside the figures that go into the report as they are.
struct Outcome {
  json library;
  double seconds = 0;     // until all was sent and received
  bool finished = false;  // every sender ended in time
  uint64_t sent = 0;
  double memory = 0, memory_open = 0, open_s = 0, close_s = 0;  // of the senders
  json errors = json::object();                                 // text -> count

  void AddErrors(const json &from) {
    for (const auto &[text, count] : from.items())
      errors[text] = errors.value(text, uint64_t{0}) + count.get<uint64_t>();
  }
};

// All send at once. Processes that have not ended when the time is over are asked all the same.
void storm(const Options &options, Child &receiver, std::vector<Child> &senders, Outcome &outcome) {
  const uint64_t start = now_ns();
  receiver.control->send({{"do", "go"}});
  for (Child &child : senders) child.control->send({{"do", "go"}});
  const auto left = [&] { return std::max(0.0, options.timeout - seconds_since(start)); };
  outcome.finished = true;
  for (Child &child : senders) {
    if (child.control->readable(left())) {
      child.control->receive(1);
    } else {
      outcome.finished = false;
    }
  }
  outcome.seconds = seconds_since(start);
  // After a failure, messages that are still on their way get up to 5 s.
  if (receiver.control->readable(std::min(left(), 5.0))) {
    const json all = receiver.control->receive(1);
    outcome.seconds = std::max(outcome.seconds, all.at("seconds").get<double>());
  }
}

// Closes the senders, then the receiver, and collects their figures.
void collect(const Options &options, Child &receiver, std::vector<Child> &senders, Outcome &outcome,
             json &report) {
  if (options.gone) receiver.kill();
  const uint64_t closing = now_ns();
  for (Child &child : senders) child.control->send({{"do", "close"}});
  for (Child &child : senders) {
    const json theirs = child.control->receive(options.timeout);
    outcome.sent += theirs.at("sent").get<uint64_t>();
    outcome.memory += theirs.at("memory").get<double>();
    outcome.memory_open += theirs.at("memory_open").get<double>();
    outcome.open_s = std::max(outcome.open_s, theirs.at("open_s").get<double>());
    outcome.close_s = std::max(outcome.close_s, theirs.at("close").at("all_s").get<double>());
    outcome.AddErrors(theirs.at("errors"));
  }
  report["closing_s"] = seconds_since(closing);
  report["close_s"] = outcome.close_s;
  report["open_s"] = outcome.open_s;
  report["sent"] = outcome.sent;
  report["memory_per_endpoint"] = outcome.memory / options.endpoints;
  report["memory_per_endpoint_open"] = outcome.memory_open / options.endpoints;
  if (options.gone) return;
  receiver.control->send({{"do", "close"}});
  const json theirs = receiver.control->receive(options.timeout);
  report["received"] = theirs.at("received");
  report["wrong"] = theirs.at("wrong");
  report["memory_per_peer"] = theirs.at("memory_per_peer");
  report["one_close_s"] = theirs.at("close").at("all_s");
  outcome.AddErrors(theirs.at("errors"));
}

void print(const Options &options, const Outcome &outcome, const json &report, bool good) {
  FILE *out = options.json_file == "-" ? stderr : stdout;
  absl::FPrintF(
      out, "library: %s\n%s: %u endpoints in %u processes, %u messages of %d B each: %s\n",
      outcome.library.value("path", "?"), options.provider, options.endpoints, options.processes,
      options.messages, options.size, good ? "all arrived" : "NOT ALL ARRIVED");
  absl::FPrintF(
      out, "  open %.3f s, all sent and received %.3f s, closing the many %.3f s, the one %.3f s\n",
      outcome.open_s, outcome.seconds, report["closing_s"].get<double>(),
      report.value("one_close_s", 0.0));
  absl::FPrintF(
      out,
      "  resident memory: %.0f B per endpoint (%.0f when opened), %.0f B per peer at the one\n",
      outcome.memory / options.endpoints, outcome.memory_open / options.endpoints,
      report.value("memory_per_peer", 0.0));
  for (const auto &[text, count] : outcome.errors.items())
    absl::FPrintF(out, "  %d x %s\n", count.get<uint64_t>(), text);
}

void add_options(CLI::App &app, Options &options) {
  app.option_defaults()->always_capture_default();
  options.add_to(app);
  app.add_option("-n,--endpoints", options.endpoints, "Endpoints that send")
      ->check(CLI::Range(1, 100000));
  app.add_option("-m,--messages", options.messages, "Messages of each, one in flight")
      ->check(CLI::Range(1, 1000000));
  app.add_option("-S,--size", options.size, "Bytes of a message")->check(CLI::Range(8, 1 << 20));
  app.add_option("--processes", options.processes, "Processes that the endpoints are in")
      ->check(CLI::Range(1, 256));
  app.add_flag("--gone", options.gone, "The receiving process ends before the others close");
}

int run_main(int argc, char **argv) {
  Options options;
  CLI::App app(
      "Many endpoints, in a few processes, send to one endpoint at the same moment. The libfabric "
      "is\n"
      "the one that the loader finds (set LD_LIBRARY_PATH).\n");
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);
  options.processes = std::min(options.processes, options.endpoints);
  options.queue = std::max<size_t>(2 * kReceives, 2 * options.endpoints);

  // No call of libfabric before the forks.
  Child receiver([&](Control &control) { run_receiver(options, control); });
  std::vector<Child> senders;
  for (uint32_t p = 0; p < options.processes; ++p) {
    const uint32_t first = uint32_t(uint64_t(options.endpoints) * p / options.processes);
    const uint32_t end = uint32_t(uint64_t(options.endpoints) * (p + 1) / options.processes);
    senders.emplace_back([&options, first, end](Control &control) {
      run_senders(options, control, first, end - first);
    });
  }
  const json opened = receiver.control->receive(options.timeout);
  for (Child &child : senders) child.control->send({{"address", opened.at("address")}});
  for (Child &child : senders) child.control->receive(options.timeout);

  Outcome outcome;
  outcome.library = opened.at("library");
  json report = {{"program", "weft-storm"},        {"provider", options.provider},
                 {"endpoints", options.endpoints}, {"messages", options.messages},
                 {"size", options.size},           {"processes", options.processes},
                 {"gone", options.gone},           {"library", outcome.library}};
  storm(options, receiver, senders, outcome);
  report["seconds"] = outcome.seconds;
  report["finished"] = outcome.finished;
  collect(options, receiver, senders, outcome, report);
  report["errors"] = outcome.errors;
  const bool good =
      outcome.finished && outcome.errors.empty() &&
      outcome.sent == uint64_t(options.endpoints) * options.messages &&
      (options.gone || (report.at("received") == outcome.sent && report.at("wrong") == 0));
  report["good"] = good;
  print(options, outcome, report, good);
  options.write(report);
  return good ? 0 : 3;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char **argv) {
  return weft::bench::run_program("weft-storm", [&] { return weft::bench::run_main(argc, argv); });
}
