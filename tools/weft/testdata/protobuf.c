/* SPDX-License-Identifier: BSD-2-Clause */
/* Has the name of a library that no plugin may need, and nothing else of it. */
__attribute__((visibility("default"))) int looks_like_protobuf(void) {
  return 0;
}
