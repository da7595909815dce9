// SPDX-License-Identifier: BSD-2-Clause
// The stages trust and architecture for one file, without running anything of it.
//
//   Checked<FileStamp> stamp = check_trust("/opt/frobco/frob.so", {.secure = false});
//   Checked<FileStamp> good = check_file(path, rules);          // trust, then the ELF headers
//
// Rules: a regular file; nobody but its owner (or root) can write to it or replace it; a group may
// write where the owner is the user of this process, who then decided so. `secure` (AT_SECURE):
// file and all folders above belong to root and only root can write to them. Against an attacker
// who is already this user it protects nothing.
#ifndef WEFT_CORE_LOADER_FILE_TRUST_H
#define WEFT_CORE_LOADER_FILE_TRUST_H

#include <string>

#include "core/loader/plugin_record.h"

namespace weft {

struct TrustRules {
  bool secure = false;
};

Checked<FileStamp> check_trust(const std::string &path, const TrustRules &rules);
Checked<FileStamp> check_file(const std::string &path, const TrustRules &rules);

// Nobody else can put files into the folder.
Checked<void> check_trusted_folder(const std::string &folder, const TrustRules &rules);

// The content of a trusted file of at most `limit` bytes.
Checked<std::string> read_trusted(const std::string &path, const TrustRules &rules, size_t limit);

// The stamp of whatever lies there; false: nothing does.
bool stamp_of(const std::string &path, FileStamp &stamp);

}  // namespace weft

#endif
