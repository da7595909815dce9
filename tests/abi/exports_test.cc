// SPDX-License-Identifier: BSD-2-Clause
// The exported functions as a program calls them, linked like a program. The library under test is
// real up to Front, which echoes (core/api/front_double.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <weft/diagnosis.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/paths.h"

namespace {

using testing::HasSubstr;

// Before the first call into the library, which reads the environment once.
struct SetEnvironment : testing::Environment {
  void SetUp() override {
    setenv("FI_LOG_LEVEL", "info", 1);
    setenv("FI_LOG_PROV", "acme", 1);
    setenv("FI_LOG_INTERVAL", "3600000", 1);
    setenv("FI_ACME_DEPTH", "16K", 1);
    setenv("FI_ACME_TRIES", "many", 1);
  }
};
const auto *const environment = testing::AddGlobalTestEnvironment(new SetEnvironment);

fi_provider acme() {
  fi_provider provider{};
  provider.name = "acme";
  return provider;
}

TEST(Version, IsTheHeaders) {
  EXPECT_EQ(fi_version(), FI_VERSION(2, 6));
  EXPECT_STREQ(fi_tostr(nullptr, FI_TYPE_VERSION), "2.6.0");
}

TEST(Strerror, TakesBothSigns) {
  EXPECT_STREQ(fi_strerror(FI_ETRUNC), fi_strerror(-FI_ETRUNC));
  EXPECT_STREQ(fi_strerror(FI_EAGAIN), std::strerror(EAGAIN));
}

TEST(Info, AllocDupGetFree) {
  fi_info *hints = fi_allocinfo();
  ASSERT_NE(hints, nullptr);
  hints->ep_attr->type = FI_EP_RDM;
  fi_info *info = nullptr;
  ASSERT_EQ(fi_getinfo(FI_VERSION(2, 6), nullptr, nullptr, 0, hints, &info), 0);
  EXPECT_EQ(info->ep_attr->type, FI_EP_RDM);
  EXPECT_EQ(info->fabric_attr->api_version, FI_VERSION(2, 6));
  ASSERT_NE(info->nic, nullptr);
  EXPECT_STREQ(info->nic->device_attr->name, "double");
  fi_info *copy = fi_dupinfo(info);
  fi_freeinfo(info);
  EXPECT_STREQ(copy->nic->device_attr->name, "double");
  fi_freeinfo(copy);
  fi_freeinfo(hints);
}

TEST(Tostr, ThreadsHaveTextsOfTheirOwn) {
  const uint64_t mine = FI_MSG;
  const char *text = fi_tostr(&mine, FI_TYPE_CAPS);
  std::string theirs;
  std::thread([&theirs] {
    const uint64_t caps = FI_RMA;
    theirs = fi_tostr(&caps, FI_TYPE_CAPS);
  }).join();
  EXPECT_STREQ(text, "FI_MSG");
  EXPECT_EQ(theirs, "FI_RMA");
}

TEST(Tostr, WritesIntoTheCallersBuffer) {
  const uint64_t caps = FI_MSG | FI_RMA;
  char small[8];
  EXPECT_EQ(fi_tostr_r(small, sizeof small, &caps, FI_TYPE_CAPS), small);
  EXPECT_STREQ(small, "FI_MSG,");
  EXPECT_EQ(fi_tostr_r(nullptr, 0, &caps, FI_TYPE_CAPS), nullptr);
}

TEST(Log, FiltersAndWritesToStderr) {
  fi_provider provider = acme();
  fi_provider nameless{};
  EXPECT_EQ(fi_log_enabled(&provider, FI_LOG_INFO, FI_LOG_CQ), 1);
  EXPECT_EQ(fi_log_enabled(&provider, FI_LOG_DEBUG, FI_LOG_CQ), 0);
  EXPECT_EQ(fi_log_enabled(&nameless, FI_LOG_WARN, FI_LOG_CQ), 0);
  EXPECT_EQ(fi_log_enabled(nullptr, FI_LOG_WARN, FI_LOG_CQ), 0);
  uint64_t showtime = 0;
  EXPECT_EQ(fi_log_ready(&provider, FI_LOG_INFO, FI_LOG_CQ, &showtime), 1);
  EXPECT_EQ(fi_log_ready(&provider, FI_LOG_INFO, FI_LOG_CQ, &showtime), 0);

  testing::internal::CaptureStderr();
  FI_INFO(&provider, FI_LOG_EP_CTRL, "connect to %s\n", "peer");
  FI_DBG(&provider, FI_LOG_EP_CTRL, "not %s\n", "this");
  const std::string longer(5000, 'x');
  fi_log(&provider, FI_LOG_INFO, FI_LOG_CQ, "f", 7, "%s", longer.c_str());
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("::acme:ep_ctrl:TestBody():"));
  EXPECT_THAT(text, HasSubstr("<info> connect to peer\n"));
  EXPECT_THAT(text, HasSubstr("::acme:cq:f():7<info> " + longer + "\n"));
  EXPECT_EQ(text.find("not this"), std::string::npos);
}

TEST(Params, OfAStockProvider) {
  fi_provider provider = acme();
  EXPECT_EQ(fi_param_define(&provider, "depth", FI_PARAM_SIZE_T, "entries of %s", "a queue"), 0);
  EXPECT_EQ(fi_param_define(&provider, "tries", FI_PARAM_INT, "how often"), 0);
  EXPECT_EQ(fi_param_define(&provider, "empty", FI_PARAM_INT, "%s", ""), -FI_EINVAL);
  size_t depth = 0;
  int tries = 3;
  EXPECT_EQ(fi_param_get_size_t(&provider, "depth", &depth), 0);
  EXPECT_EQ(depth, 16384u);
  testing::internal::CaptureStderr();
  EXPECT_EQ(fi_param_get_int(&provider, "tries", &tries), -FI_EINVAL);
  EXPECT_EQ(fi_param_get_int(&provider, "tries", &tries), -FI_EINVAL);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "libfabric: FI_ACME_TRIES=many: expected an integer; the value is ignored\n");
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(fi_param_get_int(&provider, "never", &tries), -FI_ENOENT);

  fi_param *params = nullptr;
  int count = 0;
  ASSERT_EQ(fi_getparams(&params, &count), 0);
  std::vector<std::string> lines;
  for (int i = 0; i < count; i++) {
    lines.push_back(std::string(params[i].name) + "=" + (params[i].value ? params[i].value : "-") +
                    " " + params[i].help_string);
  }
  EXPECT_THAT(lines, testing::Contains("FI_ACME_DEPTH=16K entries of a queue"));
  EXPECT_THAT(lines, testing::Contains("FI_DOUBLE_SIZE=4K a size"));
  EXPECT_THAT(lines, testing::Contains("FI_DOUBLE_NAME=- a name"));
  EXPECT_THAT(lines, testing::Contains(testing::StartsWith("FI_LOG_LEVEL=info ")));
  fi_freeparams(params);
  fi_freeparams(nullptr);
  EXPECT_EQ(fi_getparams(nullptr, &count), -FI_EINVAL);
  EXPECT_EQ(fi_getparams(&params, nullptr), -FI_EINVAL);
}

TEST(Open, DiagnosisFindsItsOwnFolder) {
  struct fid *weft = nullptr;
  weft_diagnosis_ops *ops = nullptr;
  ASSERT_EQ(fi_open(fi_version(), WEFT_DIAGNOSIS, nullptr, 0, 0, &weft, nullptr), 0);
  ASSERT_EQ(fi_open_ops(weft, WEFT_DIAGNOSIS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr), 0);
  char *text = nullptr;
  ASSERT_EQ(ops->config(weft, &text), 0);
  EXPECT_EQ(text, '"' + std::filesystem::canonical(weft::test::built("tests")).string() + '"');
  std::free(text);
  EXPECT_EQ(fi_close(weft), 0);
  EXPECT_EQ(fi_open(fi_version(), "nonsense", nullptr, 0, 0, &weft, nullptr), -FI_ENOSYS);
}

std::string imported;
TEST(Open, LogCanBeImported) {
  static fi_ops_log ops{};
  ops.log = [](const fi_provider *, fi_log_level, fi_log_subsys, const char *, int,
               const char *msg) { imported += msg; };
  static fid_logging logging{};
  logging.ops = &ops;
  ASSERT_EQ(fi_import_log(FI_VERSION(2, 6), 0, &logging), 0);
  fi_provider provider = acme();
  FI_WARN(&provider, FI_LOG_CORE, "to the %s\n", "application");
  EXPECT_EQ(imported, "to the application\n");
  EXPECT_EQ(fi_close(&logging.fid), 0);
  FI_WARN(&provider, FI_LOG_CORE, "to %s again\n", "stderr");
  EXPECT_EQ(imported, "to the application\n");
}

}  // namespace
