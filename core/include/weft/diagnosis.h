/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks a running libfabric.so.1 of weft for the reasons of its choices, for its plugins and
 * configuration, and for its live objects.
 *
 * Example:
 *    #include <rdma/fi_errno.h>
 *    #include <stdio.h>
 *    #include <stdlib.h>
 *    static void why(const char *provider) {
 *      struct fid *weft;
 *      struct weft_diagnosis_ops *ops;
 *      if (fi_open(fi_version(), WEFT_DIAGNOSIS, NULL, 0, 0, &weft, NULL) != 0) return;
 *      if (fi_open_ops(weft, WEFT_DIAGNOSIS_OPS, 0, (void **)&ops, NULL) == 0) {
 *        char *text;
 *        int ret = ops->why(weft, provider, &text);
 *        fprintf(ret ? stderr : stdout, "%s\n", text ? text : fi_strerror(-ret));
 *        free(text);
 *      }
 *      fi_close(weft);
 *    }
 *
 * No exported symbol beyond the C API is needed; another libfabric answers fi_open() with an error.
 * The texts are JSON for tools: members are only ever added. Not for programs that merely want to
 * communicate, and not a stable place for statistics (WEFT_COUNTERS_OPS of weft/plugin.h).
 */
#ifndef WEFT_DIAGNOSIS_H
#define WEFT_DIAGNOSIS_H

#include <rdma/fabric.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DIAGNOSIS "weft"
#define WEFT_DIAGNOSIS_OPS "weft_diagnosis_1"

/* Calls return 0 or -FI_E.... Those with `text_app` set it to a text that the caller frees with
 * free(): the JSON, or on failure the reason in words; NULL where memory is short. Touch a member
 * only if it ends within `size`. `weft` is the fid from fi_open(). */
struct weft_diagnosis_ops {
  size_t size;

  /* The decisions on one unit or stack, as an array of
   *   {"candidate", "stage", "accepted", "reason", "remedy", "rule"}.
   * `name` NULL or "": all decisions of the last fi_getinfo(), or of one without hints where there
   * was none. */
  int (*why)(struct fid *weft, const char *name, char **text_app);

  /* What the units of a stack ("tcp;ofi_rxm", or a name from the configuration) found on this
   * machine and how they decided: "elements" is an array of {"unit", "lines"} from the application
   * down. A layer over several providers has "branches", an array of such arrays. Where further
   * stacks have the name, "parts" is an array of them. */
  int (*explain)(struct fid *weft, const char *stack, char **text_app);

  /* Every plugin and unit that is known, with manifest, parameters and the troubles of discovery.
   */
  int (*plugins)(struct fid *weft, char **text_app);

  /* The merged configuration with the origin of every value. */
  int (*config)(struct fid *weft, char **text_app);

  /* The live objects: an array of {"id", "class", "fid", "parent", "element", "hooks": [outermost
   * first]}; `parent` is an id, 0 for a fabric. */
  int (*objects)(struct fid *weft, char **text_app);

  /* Attaches the hook unit `hook` to the live object `root` and to all objects that were and will
   * be opened from it, in place; detaches it. On failure *text_app is the reason, else NULL;
   * text_app may be NULL. */
  int (*attach_hook)(struct fid *weft, struct fid *root, const char *hook, char **text_app);
  int (*detach_hook)(struct fid *weft, struct fid *root, const char *hook, char **text_app);

  /* For a process that asks in the place of another one, which goes on if a plugin hangs or
   * crashes: `step` is called before each call into a plugin (`call`: "dlopen", "init", "create",
   * "wrap", "getinfo", "explain"), and when one ends, with the one around it; `unit` NULL: there is
   * none. It runs in the thread of the call, and calls nothing of this library. */
  int (*watch)(struct fid *weft,
               void (*step)(void *arg, const char *unit, const char *library, const char *call),
               void *arg);
  /* Refuses the plugin file `library` in this process, before anything else was asked. `why` and
   * `remedy` are what the decision record says of it, at the stage "getinfo". */
  int (*refuse)(struct fid *weft, const char *library, const char *why, const char *remedy);

  /* Answers in this process as for a machine that is not quite this one, before anything else was
   * asked. `what` is one of
   *   "file": `name` is the path of a configuration file, and the file `value` is read in its place,
   *     whether something stands there or not;
   *   "hostname", "executable": `value` is what rules of the configuration see; `name` is not used;
   *   "netdev": rules take the interface `name` of this machine for `value`, "ib0", or
   *     "ib0,10.1.0.7" where it has another address as well.
   * Plugins see the machine as it is. On failure *text_app is the reason; text_app may be NULL. */
  int (*suppose)(struct fid *weft, const char *what, const char *name, const char *value,
                 char **text_app);
};

#ifdef __cplusplus
}
#endif

#endif
