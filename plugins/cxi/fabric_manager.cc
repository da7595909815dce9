// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fabric_manager.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weft/sdk/progress/quiet_thread.h>
#include <weft/sdk/progress/unique_fd.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <deque>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "plugins/cxi/bits.h"

namespace weft::cxi {
namespace {

constexpr size_t kLongestAnswer = 64 << 10;
constexpr long kOk = 200, kCreated = 201;

struct Curl {
  static Result<const Curl *> open();

  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_wakeup) multi_wakeup;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_multi_cleanup) multi_cleanup;
};

Result<void> load(Curl &curl) {
  void *handle = nullptr;
  for (const char *const file : {"libcurl.so.4", "libcurl-gnutls.so.4"})
    if (handle == nullptr) handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr)
    return fail(FI_ENOSYS,
                "FI_CXI_COLL_FABRIC_MGR_URL is set, and neither libcurl.so.4 nor "
                "libcurl-gnutls.so.4 can be opened: install libcurl");
  const char *missing = nullptr;
  const auto has = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  has(curl.global_init, "curl_global_init");
  has(curl.easy_init, "curl_easy_init");
  has(curl.easy_setopt, "curl_easy_setopt");
  has(curl.easy_getinfo, "curl_easy_getinfo");
  has(curl.easy_strerror, "curl_easy_strerror");
  has(curl.easy_cleanup, "curl_easy_cleanup");
  has(curl.slist_append, "curl_slist_append");
  has(curl.slist_free_all, "curl_slist_free_all");
  has(curl.multi_init, "curl_multi_init");
  has(curl.multi_add_handle, "curl_multi_add_handle");
  has(curl.multi_remove_handle, "curl_multi_remove_handle");
  has(curl.multi_perform, "curl_multi_perform");
  has(curl.multi_poll, "curl_multi_poll");
  has(curl.multi_wakeup, "curl_multi_wakeup");
  has(curl.multi_info_read, "curl_multi_info_read");
  has(curl.multi_cleanup, "curl_multi_cleanup");
  if (missing != nullptr)
    return fail(FI_ENOSYS, "libcurl has no %s: it is older than 7.68; update it", missing);
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    return fail(FI_EOTHER, "libcurl does not start (curl_global_init)");
  return {};
}

Result<const Curl *> Curl::open() {
  static Curl curl;
  static const Result<void> loaded = load(curl);
  if (!loaded) return tl::unexpected<Error>(loaded.error());
  return &curl;
}

std::string mac_of(Nid nid) {
  char text[sizeof "02:00:00:00:00:00"];
  std::snprintf(text, sizeof text, "02:00:00:%02x:%02x:%02x", nid >> 16 & 0xf, nid >> 8 & 0xff,
                nid & 0xff);
  return text;
}

// "x:xx:xx", as a NIC is written.
std::optional<Nid> nid_of(const std::string &text) {
  constexpr std::string_view kForm = "x:xx:xx";
  if (text.size() != kForm.size()) return std::nullopt;
  Nid nid = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (kForm[i] == ':' && text[i] == ':') continue;
    if (kForm[i] == ':' || std::isxdigit(uint8_t(text[i])) == 0) return std::nullopt;
    nid = nid << 4 | Nid(std::stoul(text.substr(i, 1), nullptr, 16));
  }
  return nid;
}

}  // namespace

// ---- what is said ----

Result<void> check_manager(const ManagerOptions &options, const std::string &origin) {
  std::string_view url = options.url;
  if (url.empty() || url.starts_with("https://")) return {};
  for (const std::string_view here : {"http://127.0.0.1", "http://localhost", "http://[::1]"}) {
    if (!url.starts_with(here)) continue;
    const std::string_view rest = url.substr(here.size());
    if (rest.substr(0, rest.find('/')).find('@') != std::string_view::npos) break;
    if (rest.empty() || rest.front() == '/' || rest.front() == ':') return {};
  }
  return fail(FI_EINVAL,
              "cxi coll_fabric_mgr_url is \"%s\" (%s): it must begin with https://, or be of this "
              "host, since a token is sent there",
              options.url.c_str(), origin.c_str());
}

std::string FabricManager::request(const ManagerOptions &options, const std::vector<Nid> &members,
                                   Vni vni) {
  nlohmann::json macs = nlohmann::json::array();
  for (const Nid member : members) macs.push_back(mac_of(member));
  return nlohmann::json{{"macs", std::move(macs)},
                        {"vni", vni},
                        {"timeout", kPatienceMs},
                        {"jobID", options.job},
                        {"jobStepID", options.step}}
      .dump();
}

FabricManager::Answer FabricManager::parse(uint64_t group, const std::string &text) {
  Answer answer{.group = group};
  const auto refuse = [&](Failure failure, const char *why) {
    answer.failure = failure;
    answer.why = why;
    return answer;
  };
  const nlohmann::json said = nlohmann::json::parse(text, nullptr, false);
  if (!said.is_object()) return refuse(Failure::kManagerRefused, "its answer is no JSON object");
  const auto address = said.find("mcastID"), root = said.find("hwRoot");
  if (address == said.end() || !address->is_number_unsigned() ||
      address->get<uint64_t>() > kMaxAddress)
    return refuse(Failure::kAddressInvalid, "its answer has no mcastID from 0 to 65535");
  answer.address = address->get<uint32_t>();
  const auto nid = root != said.end() && root->is_string()
                       ? nid_of(root->get_ref<const std::string &>())
                       : std::nullopt;
  if (!nid) return refuse(Failure::kTreeRootInvalid, "its answer has no hwRoot such as 0:12:34");
  answer.root = *nid;
  return answer;
}

// ---- the thread ----

class FabricManager::Worker final : private sdk::Handler {
 public:
  struct Request {
    bool gives_back = false;
    uint64_t group = 0;
    std::string url, body, answer;
    CURL *easy = nullptr;
    curl_slist *headers = nullptr;
  };
  Worker(const Curl &curl, const weft_instance *instance, const ManagerOptions &options,
         sdk::Engine &engine, User &user)
      : curl_(curl), instance_(instance), options_(options), engine_(engine), user_(user) {
    while (options_.url.ends_with('/')) options_.url.pop_back();
  }
  ~Worker();
  Result<void> start();
  void leave() { engine_.remove(*this); }
  void add(Request request);
  const ManagerOptions &options() const { return options_; }

 private:
  static size_t on_bytes(char *bytes, size_t one, size_t count, void *request);
  void run();
  bool begin(Request &request);
  void end(Request &request, CURLcode code);
  void finish(Request &request);
  Answer judge(const Request &request, CURLcode code) const;
  void return_unused(const Answer &answer);
  void tell(Answer answer);
  void on_event(uint32_t) override;

  const Curl &curl_;
  const weft_instance *instance_;
  ManagerOptions options_;
  sdk::Engine &engine_;
  User &user_;
  sdk::UniqueFd told_;  // an eventfd: there are answers
  CURLM *multi_ = nullptr;
  std::thread thread_;
  pid_t owner_ = 0;  // a child that is forked has no thread
  std::mutex mutex_;
  std::deque<Request> waiting_;  // for the thread
  std::vector<Answer> answers_;
  bool stops_ = false;
  std::list<Request> active_;  // of the thread
};

Result<void> FabricManager::Worker::start() {
  told_ = sdk::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (told_.get() < 0)
    return fail(FI_EMFILE, "no descriptor for the answers of the fabric manager");
  multi_ = curl_.multi_init();
  if (multi_ == nullptr) return fail(FI_ENOMEM, "no memory for requests to the fabric manager");
  if (sdk::start_quiet_thread(thread_, [this] { run(); }) != 0)
    return fail(FI_EAGAIN, "no thread for requests to the fabric manager");
  owner_ = ::getpid();
  engine_.add(*this, told_.get(), EPOLLIN, EPOLLIN);
  return {};
}

FabricManager::Worker::~Worker() {
  if (thread_.joinable() && owner_ == ::getpid()) {
    {
      const std::lock_guard guard(mutex_);
      stops_ = true;
      for (const Answer &answer : std::exchange(answers_, {})) return_unused(answer);
    }
    curl_.multi_wakeup(multi_);
    thread_.join();
  } else if (thread_.joinable()) {
    thread_.detach();
    return;
  }
  if (multi_ != nullptr) curl_.multi_cleanup(multi_);
}

void FabricManager::Worker::add(Request request) {
  {
    const std::lock_guard guard(mutex_);
    waiting_.push_back(std::move(request));
  }
  curl_.multi_wakeup(multi_);
}

size_t FabricManager::Worker::on_bytes(char *bytes, size_t one, size_t count, void *request) {
  std::string &answer = static_cast<Request *>(request)->answer;
  if (answer.size() + one * count > kLongestAnswer) return 0;  // ends it
  answer.append(bytes, one * count);
  return one * count;
}

bool FabricManager::Worker::begin(Request &request) {
  request.easy = curl_.easy_init();
  if (request.easy == nullptr) return false;
  const auto set = [&](CURLoption option, auto value) {
    return curl_.easy_setopt(request.easy, option, value) == CURLE_OK;
  };
  bool done = true;
  for (const std::string &line :
       {"Authorization: Bearer " + options_.token, std::string("Content-Type: application/json")})
    if (curl_slist *const more = curl_.slist_append(request.headers, line.c_str())) {
      request.headers = more;
    } else {
      done = false;
    }
  done &= set(CURLOPT_URL, request.url.c_str());
  done &= set(CURLOPT_HTTPHEADER, request.headers);
  // A proxy would see the token of a request that is not encrypted.
  if (request.url.starts_with("http://")) done &= set(CURLOPT_PROXY, "");
  done &= set(CURLOPT_NOSIGNAL, 1L);
  done &= set(CURLOPT_TIMEOUT_MS, long{kPatienceMs});
  done &= set(CURLOPT_WRITEFUNCTION, &Worker::on_bytes);
  done &= set(CURLOPT_WRITEDATA, &request);
  done &= set(CURLOPT_PRIVATE, &request);
  if (request.gives_back) {
    done &= set(CURLOPT_CUSTOMREQUEST, "DELETE");
  } else {
    done &= set(CURLOPT_POSTFIELDS, request.body.c_str());
  }
  return done && curl_.multi_add_handle(multi_, request.easy) == CURLM_OK;
}

void FabricManager::Worker::finish(Request &request) {
  curl_.slist_free_all(request.headers);
  if (request.easy != nullptr) curl_.easy_cleanup(request.easy);
  active_.remove_if([&](const Request &one) { return &one == &request; });
}

FabricManager::Answer FabricManager::Worker::judge(const Request &request, CURLcode code) const {
  Answer answer{.group = request.group};
  long status = 0;
  if (request.easy != nullptr) curl_.easy_getinfo(request.easy, CURLINFO_RESPONSE_CODE, &status);
  if (code == CURLE_OPERATION_TIMEDOUT) {
    answer.failure = Failure::kManagerLate;
    answer.why = "no answer in " + std::to_string(kPatienceMs / 1000) + " s";
  } else if (code != CURLE_OK) {
    answer.failure = Failure::kManagerFailed;
    answer.why = curl_.easy_strerror(code);
  } else if (request.gives_back ? status / 100 != 2 : status != kOk && status != kCreated) {
    answer.failure = Failure::kManagerRefused;
    answer.why = "HTTP status " + std::to_string(status);
  } else if (!request.gives_back) {
    return parse(request.group, request.answer);
  }
  return answer;
}

// An address that came when nobody waited for it any more. With mutex_ held.
void FabricManager::Worker::return_unused(const Answer &answer) {
  if (answer.failure != Failure::kNone) return;
  waiting_.push_back(
      {.gives_back = true, .url = options_.url + "/" + std::to_string(answer.address)});
  curl_.multi_wakeup(multi_);
}

void FabricManager::Worker::tell(Answer answer) {
  {
    const std::lock_guard guard(mutex_);
    if (stops_) return return_unused(answer);
    answers_.push_back(std::move(answer));
  }
  ::eventfd_write(told_.get(), 1);
}

void FabricManager::Worker::end(Request &request, CURLcode code) {
  Answer answer = judge(request, code);
  if (!answer.why.empty())
    WEFT_WARN(instance_, FI_LOG_EP_CTRL, "the fabric manager at %s %s: %s", request.url.c_str(),
              request.gives_back ? "does not take a multicast address back"
                                 : "gives a group no multicast address",
              answer.why.c_str());
  if (!request.gives_back) tell(std::move(answer));
  finish(request);
}

void FabricManager::Worker::run() {
  for (;;) {
    std::deque<Request> fresh;
    bool stops;
    {
      const std::lock_guard guard(mutex_);
      std::swap(fresh, waiting_);
      stops = stops_;
    }
    for (Request &request : fresh) {
      active_.push_back(std::move(request));
      if (!begin(active_.back())) end(active_.back(), CURLE_OUT_OF_MEMORY);
    }
    if (stops && active_.empty()) return;
    int running = 0, left = 0;
    curl_.multi_perform(multi_, &running);
    while (const CURLMsg *const message = curl_.multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      CURL *const easy = message->easy_handle;
      const auto request = std::ranges::find(active_, easy, &Request::easy);
      curl_.multi_remove_handle(multi_, easy);
      if (request != active_.end()) end(*request, code);
    }
    if (stops && active_.empty()) continue;
    curl_.multi_poll(multi_, nullptr, 0, 1000, nullptr);
  }
}

void FabricManager::Worker::on_event(uint32_t) {
  eventfd_t count;
  if (::eventfd_read(told_.get(), &count) != 0) return;
  std::vector<Answer> answers;
  {
    const std::lock_guard guard(mutex_);
    std::swap(answers, answers_);
  }
  for (const Answer &answer : answers) user_.on_manager_answer(answer);
}

// ---- the manager ----

Result<std::unique_ptr<FabricManager>> FabricManager::open(const weft_instance *instance,
                                                           const ManagerOptions &options,
                                                           sdk::Engine &engine, User &user) {
  WEFT_TRY(const Curl *const curl, Curl::open());
  auto worker = std::make_unique<Worker>(*curl, instance, options, engine, user);
  WEFT_CHECK(worker->start());
  return std::unique_ptr<FabricManager>(new FabricManager(std::move(worker)));
}

FabricManager::FabricManager(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}
FabricManager::~FabricManager() = default;
void FabricManager::leave() {
  worker_->leave();
}

void FabricManager::ask(uint64_t group, const std::vector<Nid> &members, Vni vni) {
  const ManagerOptions &options = worker_->options();
  worker_->add({.group = group, .url = options.url, .body = request(options, members, vni)});
}

void FabricManager::give_back(uint32_t address) {
  worker_->add({.gives_back = true, .url = worker_->options().url + "/" + std::to_string(address)});
}

}  // namespace weft::cxi
