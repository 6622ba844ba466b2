/* The parts of the addon. Each call of JavaScript is a request: its arguments are read on the
 * thread of JavaScript, `run` makes it there or on a thread of libuv's pool, and its result
 * becomes a value on the thread of JavaScript again. */

#ifndef VFSCALE_NODE_ADDON_H
#define VFSCALE_NODE_ADDON_H

#define NAPI_VERSION 8
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <node_api.h>
#include "vfscale.h"

/** Bytes of a file that the buffer of an environment has room for. */
#define SCRATCH_SIZE 65536
/** Numbers of the attributes of a file, and of the state of a file system. */
#define FIELDS_MAX 18
/** Room for a path of the longest length, one byte more, and a zero. */
#define PATH_ROOM 4098

/** Is taken from an error of a call on a file that was opened by path. */
#define AFTER_OPEN 4096

enum kind { KIND_TREE = 1, KIND_TASK, KIND_POOL, KIND_WATCHER };

/** A handle of the library that an object of JavaScript holds. The library validates the number. */
struct box {
    uint32_t magic;
    enum kind kind;
    void *handle;
    /** The tree of a tree or task, the pool of a pool. */
    void *owner;
    /** The next task of the tree. */
    struct box *next;
};

/** Bytes that grow. */
struct bytes {
    char *data;
    size_t size, room;
};

/** How `result` and `out` become a value, if `result` is not negative. */
enum shape {
    SHAPE_NUMBER,
    SHAPE_TEXT,
    SHAPE_BUFFER,
    /** The bytes are in the buffer of the environment; the value is their number, or with n[1] a
     * text. */
    SHAPE_SCRATCH,
    /** The fields are in the array of the environment; the value is 0. */
    SHAPE_FIELDS,
    /** Numbers and texts, as list_number and list_text have added them. */
    SHAPE_LIST,
    SHAPE_BOX,
};

/** The memory that an environment shares with JavaScript, and what an addon has for it. */
struct environment {
    double *numbers;
    uint64_t *exact;
    char *scratch;
};

struct request;

/**
 * A function of JavaScript. `arguments`: the kinds of boxes T (tree), t (task), P (pool), W
 * (watcher); p a path; n an integer; f a number; d data, a text or a view; o a view to write to.
 */
struct op {
    const char *name, *arguments;
    void (*run)(struct request *);
    /** Whether a failure has the text of the library. */
    int tells;
};

struct request {
    const struct op *op;
    /** NULL on a thread of the pool. */
    struct environment *environment;
    void *handle;
    struct box *box;
    char *paths[4];
    int64_t n[6];
    double f[2];
    char *data;
    size_t size;
    /** Memory that `data` is in, if that is the request's own. */
    char *owned;
    int paths_read, numbers_read, floats_read;

    /** The result of the library: a negative number is an error. */
    int64_t result;
    enum shape shape;
    struct bytes out;
    uint64_t fields[FIELDS_MAX];
    struct box *made;
    char *text;

    napi_async_work work;
    /** The view, and the object of the box, are kept until the call has ended. */
    napi_ref callback, view, holder;
    /** The place of a path, for a call that does not wait. */
    char *rooms;
};

/** Makes room for more bytes. */
int bytes_reserve(struct bytes *bytes, size_t size);
int bytes_add(struct bytes *bytes, const void *data, size_t size);
int list_number(struct request *request, int64_t number);
int list_text(struct request *request, const char *text, size_t size);
napi_value box_value(napi_env env, struct box *box);
struct box *box_of(napi_env env, napi_value value, enum kind kind);

/** The functions of a file, with an op without a name at the end. */
extern const struct op calls_ops[], whole_ops[], trees_ops[], pools_ops[], watch_ops[];

int whole_read(struct vfscale_task *task, int fd, struct bytes *out);

struct box *box_new(enum kind kind, void *handle, void *owner);
void box_drop(struct box *box);
/** Frees what a box holds, after JavaScript has let it go. */
void box_free(struct box *box);

/** Starts a watcher's thread: watch(task, path, tree, callback) of JavaScript. */
napi_value watch_start(napi_env env, napi_callback_info info);
napi_value watch_keep(napi_env env, napi_callback_info info);
void watch_stop(void *handle);

#endif
