// SPDX-License-Identifier: BSD-2-Clause
// What the tests of config/ share: the reader opened as the core opens it, and its answers in
// comparable form.
//
// read_policy() and read_manifest() give what was read with its diagnostics, good_policy() expects
// none, and policy_errors() and manifest_errors() give those of a text that must be refused, as
// "2:1 unknown key 'Use': did you mean 'use'?". For tests only.
#ifndef WEFT_CONFIG_TEST_READER_H
#define WEFT_CONFIG_TEST_READER_H

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/policy.h"
#include "tests/paths.h"

namespace weft::config {

inline const weft_config_reader &reader() {
  static const weft_config_reader *table = [] {
    const std::string path = test::built("lib/weft/weft-config.so");
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      ADD_FAILURE() << dlerror();
      std::abort();
    }
    auto query = reinterpret_cast<weft_config_query_fn>(dlsym(library, WEFT_CONFIG_SYMBOL));
    return query();
  }();
  return *table;
}

struct Diagnostic {
  uint32_t severity;
  weft_where where;
  std::string text;

  // "line:column text", where the text must tell the same place, which is left out.
  std::string placed() const {
    const std::string line = std::to_string(where.line), column = std::to_string(where.column);
    const std::string place = " (line " + line + ", column " + column + ")";
    const size_t at = text.find(place);
    EXPECT_NE(at, std::string::npos) << text;
    if (at == std::string::npos) return text;
    return line + ":" + column + " " + std::string(text).erase(at, place.size());
  }
};

inline void collect(void *arg, uint32_t severity, const weft_where *where, const char *text) {
  static_cast<std::vector<Diagnostic> *>(arg)->push_back({severity, *where, text});
}

template <class View>
struct Answer {
  int32_t code = 0;
  std::unique_ptr<View, void (*)(View *)> view;
  std::vector<Diagnostic> diagnostics;
  const View *operator->() const { return view.get(); }
  std::vector<std::string> placed() const {
    std::vector<std::string> out;
    for (const Diagnostic &d : diagnostics) out.push_back(d.placed());
    return out;
  }
};

inline constexpr char kPath[] = "/etc/weft/10-site.yaml";

inline Answer<weft_policy> read_policy(std::string_view text) {
  Answer<weft_policy> answer{0, {nullptr, reader().free_policy}, {}};
  weft_policy *policy = nullptr;
  answer.code =
      reader().read_policy(kPath, text.data(), text.size(), collect, &answer.diagnostics, &policy);
  answer.view.reset(policy);
  return answer;
}

inline Answer<weft_manifest> read_manifest(std::string_view text) {
  Answer<weft_manifest> answer{0, {nullptr, reader().free_manifest}, {}};
  weft_manifest *manifest = nullptr;
  answer.code = reader().read_manifest(kPath, text.data(), text.size(), collect,
                                       &answer.diagnostics, &manifest);
  answer.view.reset(manifest);
  return answer;
}

// A policy without mistakes, with "version: 1" in front, so that `text` begins at line 2.
inline Answer<weft_policy> good_policy(std::string_view text) {
  Answer<weft_policy> answer = read_policy("version: 1\n" + std::string(text));
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.placed(), ::testing::IsEmpty());
  EXPECT_NE(answer.view, nullptr);
  return answer;
}

// The diagnostics of a text that must be refused, as "line:column text".
template <class View>
std::vector<std::string> errors_of(const Answer<View> &answer) {
  EXPECT_EQ(answer.code, -FI_EINVAL);
  for (const Diagnostic &d : answer.diagnostics) {
    EXPECT_EQ(d.severity, uint32_t{WEFT_DIAG_ERROR}) << d.text;
    EXPECT_STREQ(d.where.file, kPath);
  }
  return answer.placed();
}
inline std::vector<std::string> policy_errors(std::string_view text) {
  return errors_of(read_policy(text));
}
// Those of a text below "version: 1": it begins at line 2.
inline std::vector<std::string> body_errors(std::string_view text) {
  return policy_errors("version: 1\n" + std::string(text));
}
inline std::vector<std::string> manifest_errors(std::string_view text) {
  return errors_of(read_manifest(text));
}

}  // namespace weft::config

#endif
