// SPDX-License-Identifier: BSD-2-Clause
// The stages trust and architecture for one file, without running anything of it.
//
// Example:
//    weft::Checked<weft::FileStamp> check(const std::string &path) {
//      const weft::TrustRules rules = weft::trust_rules(false, "/usr/lib/x86_64-linux-gnu");
//      return weft::check_file(path, rules);  // check_trust(), then the ELF headers
//    }
//
// A path is walked from the root by descriptors, and every folder, every link and the file itself
// is judged as it was opened. Only trusted users can exchange a path that passes, so it may be
// given to dlopen(). The rules:
//
//   - It is a regular file. File, links and folders belong to root, to the user of this process, or
//     to the owner of the folder of libfabric.so.1, whose code runs already.
//   - Others can write to none of them. Exception: a sticky folder to which everybody (/tmp) or a
//     group can write may be on the way and may hold plugins. A file in it must belong to root or
//     the user of this process, and must have one name only: others can put a hard link there.
//   - A group may write where the owner is the user of this process, who then decided so. If that
//     user is in the group and not root, the group may also write to the folders above the plugin's
//     own.
//   - The folder of libfabric.so.1 and those above it are not judged: whoever can write there can
//     exchange this code.
//   - With `secure` (AT_SECURE) all of it belongs to root, and only root can write.
//
// It does not protect against an attacker who is already this user.
#ifndef WEFT_CORE_LOADER_FILE_TRUST_H
#define WEFT_CORE_LOADER_FILE_TRUST_H

#include <sys/types.h>

#include <string>

#include "core/loader/plugin_record.h"

namespace weft {

struct TrustRules {
  bool secure = false;
  std::string library_folder = {};  // that of libfabric.so.1, links resolved; empty: not known
  uid_t library_owner = 0;          // that of this folder
};

// The rules of a process whose libfabric.so.1 lies in `library_folder`.
TrustRules trust_rules(bool secure, const std::string &library_folder);

Checked<FileStamp> check_trust(const std::string &path, const TrustRules &rules);
Checked<FileStamp> check_file(const std::string &path, const TrustRules &rules);

// Whether nobody else can put files into the folder, or only files that check_trust() refuses.
Checked<void> check_trusted_folder(const std::string &folder, const TrustRules &rules);

// The content of a trusted file of at most `limit` bytes.
Checked<std::string> read_trusted(const std::string &path, const TrustRules &rules, size_t limit);

// The stamp of whatever lies there; false: nothing does.
bool stamp_of(const std::string &path, FileStamp &stamp);

}  // namespace weft

#endif
