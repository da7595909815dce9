// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/named_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <weft/diagnosis.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "core/api/process.h"

namespace weft {
namespace {

constexpr uint32_t kVersion = FI_VERSION(2, 6);

class NamedObjects : public testing::Test {
 protected:
  int open(const char *name, struct fid **fid, size_t attr_len = 0, uint64_t flags = 0,
           uint32_t version = kVersion) {
    return open_named(process, version, name, nullptr, attr_len, flags, fid, this);
  }
  Process process{Environment{{}, "/folder", false}};
};

TEST_F(NamedObjects, UnknownNamesAndArgumentsAreRefused) {
  struct fid *fid = reinterpret_cast<struct fid *>(1);
  EXPECT_EQ(open("mr_cache", &fid), -FI_ENOSYS);
  EXPECT_EQ(fid, nullptr);
  EXPECT_EQ(open("", &fid), -FI_ENOSYS);
  EXPECT_EQ(open(nullptr, &fid), -FI_EINVAL);
  EXPECT_EQ(open("weft", nullptr), -FI_EINVAL);
  EXPECT_EQ(open("weft", &fid, 4), -FI_EINVAL);
  EXPECT_EQ(open("weft", &fid, 0, 1), -FI_EBADFLAGS);
  EXPECT_EQ(open("weft", &fid, 0, 0, FI_VERSION(99, 0)), -FI_ENOSYS);
}

TEST_F(NamedObjects, ObjectsHaveFullTables) {
  for (const char *name : {"weft", "logging"}) {
    struct fid *fid = nullptr;
    ASSERT_EQ(open(name, &fid), 0);
    EXPECT_EQ(fid->context, this);
    void *ops = nullptr;
    char text[64];
    EXPECT_EQ(fi_control(fid, FI_ENABLE, nullptr), -FI_ENOSYS);
    EXPECT_NE(fi_open_ops(fid, "no such", 0, &ops, nullptr), 0);
    EXPECT_EQ(fi_set_ops(fid, "no such", 0, nullptr, nullptr), -FI_ENOSYS);
    EXPECT_NE(fid->ops->bind(fid, fid, 0), 0);
    EXPECT_EQ(fid->ops->tostr(fid, text, sizeof text), 0);
    EXPECT_EQ(fi_close(fid), 0);
  }
}

TEST_F(NamedObjects, LoggingTakesAnImport) {
  static std::string got;
  static fi_ops_log ops = {sizeof(fi_ops_log), nullptr, nullptr,
                           [](const fi_provider *, fi_log_level, fi_log_subsys, const char *, int,
                              const char *msg) { got += msg; }};
  static fid_logging logging{{FI_CLASS_LOG, nullptr, nullptr}, &ops};
  struct fid *fid = nullptr;
  ASSERT_EQ(open("logging", &fid), 0);
  struct fid other {};
  EXPECT_EQ(fid->ops->bind(fid, &other, 0), -FI_EINVAL);
  EXPECT_EQ(fid->ops->bind(fid, nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(fi_import_fid(fid, &logging.fid, 1), -FI_EBADFLAGS);
  EXPECT_EQ(fi_import_fid(fid, &logging.fid, 0), 0);
  EXPECT_EQ(fi_close(fid), 0);
  process.log.write("tcp", FI_LOG_WARN, FI_LOG_CORE, "f", 1, "still there");
  EXPECT_EQ(got, "still there\n");
}

struct Text {
  ~Text() { std::free(text); }
  char *text = nullptr;
};

TEST_F(NamedObjects, WeftAnswersInJsonOrGivesAReason) {
  struct fid *fid = nullptr;
  weft_diagnosis_ops *ops = nullptr;
  ASSERT_EQ(open("weft", &fid), 0);
  ASSERT_EQ(fi_open_ops(fid, WEFT_DIAGNOSIS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr), 0);
  EXPECT_EQ(ops->size, sizeof *ops);
  {
    Text why, last, explain, none, plugins, config, objects;
    EXPECT_EQ(ops->why(fid, "verbs", &why.text), 0);
    EXPECT_STREQ(why.text, "[\"verbs\"]");
    EXPECT_EQ(ops->why(fid, nullptr, &last.text), 0);
    EXPECT_STREQ(last.text, "[\"\"]");
    EXPECT_EQ(ops->explain(fid, "tcp", &explain.text), 0);
    EXPECT_EQ(ops->explain(fid, "none", &none.text), -FI_ENOENT);
    EXPECT_STREQ(none.text, "no such stack");
    EXPECT_EQ(ops->plugins(fid, &plugins.text), 0);
    EXPECT_EQ(ops->config(fid, &config.text), 0);
    EXPECT_STREQ(config.text, "\"/folder\"");
    EXPECT_EQ(ops->objects(fid, &objects.text), 0);
    EXPECT_EQ(nlohmann::json::parse(objects.text), nlohmann::json::array());
    EXPECT_EQ(ops->why(fid, "tcp", nullptr), -FI_EINVAL);
  }
  {
    Text good, bad, no_root, no_hook;
    EXPECT_EQ(ops->attach_hook(fid, fid, "trace", &good.text), 0);
    EXPECT_EQ(good.text, nullptr);
    EXPECT_EQ(ops->detach_hook(fid, fid, "trace", nullptr), 0);
    EXPECT_EQ(ops->attach_hook(fid, fid, "tarce", &bad.text), -FI_ENOENT);
    EXPECT_STREQ(bad.text, "no hook \"tarce\"");
    EXPECT_EQ(ops->attach_hook(fid, nullptr, "trace", &no_root.text), -FI_EINVAL);
    EXPECT_THAT(no_root.text, testing::HasSubstr("no object"));
    EXPECT_EQ(ops->detach_hook(fid, fid, nullptr, &no_hook.text), -FI_EINVAL);
    EXPECT_EQ(ops->attach_hook(fid, fid, "tarce", nullptr), -FI_ENOENT);
  }
  {
    Text good, bad;
    EXPECT_EQ(ops->suppose(fid, "hostname", nullptr, "login1", &good.text), 0);
    EXPECT_EQ(good.text, nullptr);
    EXPECT_EQ(ops->suppose(fid, "weather", "", "fair", &bad.text), -FI_EINVAL);
    EXPECT_STREQ(bad.text, "no such thing");
    EXPECT_EQ(ops->suppose(fid, nullptr, nullptr, nullptr, nullptr), -FI_EINVAL);
  }
  EXPECT_EQ(fi_close(fid), 0);
}

TEST_F(NamedObjects, ParametersOfCoreUnitsAndProvidersAreListed) {
  process.params.define("acme", "x", FI_PARAM_INT, "help");
  std::vector<std::string> names;
  for (const ParamLine &line : process.parameters()) names.push_back(line.variable);
  EXPECT_THAT(names,
              testing::IsSupersetOf({"FI_PROVIDER", "FI_PROVIDER_PATH", "FI_HOOK", "FI_CONFIG",
                                     "FI_CONTROL", "FI_LOG_LEVEL", "FI_LOG_PROV", "FI_LOG_SUBSYS",
                                     "FI_ACME_X", "FI_DOUBLE_SIZE"}));
}

}  // namespace
}  // namespace weft
