// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "core/loader/test_loader.h"

namespace weft {
namespace {

using testing::HasSubstr;

class Elf : public testing::Test {
 protected:
  Elf() : bytes_(TestFolder::read(toy_plugin())) {
    memcpy(&header_, bytes_.data(), sizeof header_);
  }

  Checked<void> check(const std::string &bytes) {
    const int fd = open(folder_.write("x.so", bytes).c_str(), O_RDONLY | O_CLOEXEC);
    Checked<void> result = check_elf(fd, bytes.size());
    close(fd);
    return result;
  }
  // With header_ as changed by the test.
  Checked<void> check_changed() {
    std::string bytes = bytes_;
    memcpy(bytes.data(), &header_, sizeof header_);
    return check(bytes);
  }
  void expect_refused(const char *cause) {
    const Checked<void> result = check_changed();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().stage, Stage::kArchitecture);
    EXPECT_THAT(result.error().cause, HasSubstr(cause));
    EXPECT_FALSE(result.error().remedy.empty());
  }

  TestFolder folder_;
  const std::string bytes_;
  Elf64_Ehdr header_;
};

TEST_F(Elf, AcceptsAPlugin) {
  EXPECT_TRUE(check(bytes_));
}

TEST_F(Elf, AcceptsAProgramHeaderTableAtTheEnd) {  // as patchelf leaves it
  std::string bytes = bytes_;
  bytes.resize((bytes.size() + 7) / 8 * 8);
  header_.e_phoff = bytes.size();
  bytes += bytes_.substr(sizeof header_, header_.e_phnum * sizeof(Elf64_Phdr));
  memcpy(bytes.data(), &header_, sizeof header_);
  EXPECT_TRUE(check(bytes));
  bytes.pop_back();
  EXPECT_FALSE(check(bytes));
}

TEST_F(Elf, RefusesEveryTruncation) {
  for (size_t size = 0; size < bytes_.size(); size += size < 2048 ? 1 : 97)
    EXPECT_FALSE(check(bytes_.substr(0, size))) << size;
}

TEST_F(Elf, RefusesAnotherMachine) {
  header_.e_machine = header_.e_machine == EM_S390 ? EM_ARM : EM_S390;
  expect_refused("machine");
}

TEST_F(Elf, RefusesAnotherByteOrder) {
  header_.e_ident[EI_DATA] ^= 3;
  expect_refused("ELF byte order is 2, this machine's is 1");
}

TEST_F(Elf, RefusesAnExecutable) {
  header_.e_type = ET_EXEC;
  expect_refused("ELF type is 2");
}

TEST_F(Elf, RefusesOffsetsThatOverflow) {
  header_.e_phoff = UINT64_MAX - 8;
  expect_refused("program headers end at byte 18446744073709551615");
  memcpy(&header_, bytes_.data(), sizeof header_);
  header_.e_shoff = UINT64_MAX;
  expect_refused("section headers");
}

TEST_F(Elf, RefusesOddProgramHeaders) {
  header_.e_phnum = PN_XNUM;
  expect_refused("no usable program headers");
  header_.e_phnum = 0;
  expect_refused("no usable program headers");
  memcpy(&header_, bytes_.data(), sizeof header_);
  header_.e_phentsize = 1;
  expect_refused("no usable program headers");
  memcpy(&header_, bytes_.data(), sizeof header_);
  header_.e_phoff = 4096;  // whatever lies there
  EXPECT_FALSE(check_changed());
}

TEST_F(Elf, RefusesASegmentWithAWrongSize) {
  for (const auto spoil : {+[](Elf64_Phdr &p) { p.p_filesz = UINT64_MAX; },
                           +[](Elf64_Phdr &p) { p.p_offset = UINT64_MAX - 4; },
                           +[](Elf64_Phdr &p) { p.p_memsz = p.p_filesz - 1; }}) {
    std::string bytes = bytes_;
    Elf64_Phdr program;
    memcpy(&program, bytes.data() + header_.e_phoff, sizeof program);
    ASSERT_EQ(program.p_type, uint32_t{PT_LOAD});
    spoil(program);
    memcpy(bytes.data() + header_.e_phoff, &program, sizeof program);
    EXPECT_FALSE(check(bytes));
  }
}

}  // namespace
}  // namespace weft
