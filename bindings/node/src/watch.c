/* Watchers: a thread waits for changes, and calls JavaScript with each.
 *
 * The thread only ever calls the function; the thread of JavaScript ends it, and waits for its end
 * before Node frees the function. So a program or worker that ends first is no danger. */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "addon.h"

struct watching {
    struct vfscale_watcher *watcher;
    struct vfscale_token *token;
    napi_threadsafe_function function;
    pthread_t thread;
    /** The box of JavaScript; NULL after it is gone. */
    struct box *box;
    int is_stopped, has_thread;
};

static void *wait_for_events(void *data) {
    struct watching *watching = data;
    struct vfscale_event *event;
    for (;;) {
        event = malloc(sizeof *event);
        if (event == NULL ||
            vfscale_next_event(watching->watcher, -1, watching->token, event) < 0 ||
            napi_call_threadsafe_function(watching->function, event, napi_tsfn_nonblocking) !=
                napi_ok)
            break;
    }
    free(event);
    return NULL;
}

static void on_event(napi_env env, napi_value callback, void *context, void *data) {
    struct vfscale_event *event = data;
    napi_value values[3], receiver;
    (void)context;
    if (env != NULL && callback != NULL && napi_get_undefined(env, &receiver) == napi_ok &&
        napi_create_uint32(env, event->change, &values[0]) == napi_ok &&
        napi_create_string_utf8(env, event->path, NAPI_AUTO_LENGTH, &values[1]) == napi_ok &&
        napi_create_string_utf8(env, event->other, NAPI_AUTO_LENGTH, &values[2]) == napi_ok)
        napi_call_function(env, receiver, callback, 3, values, NULL);
    free(event);
}

static void on_end(napi_env env, void *data, void *hint) {
    struct watching *watching = data;
    (void)env;
    (void)hint;
    vfscale_token_cancel(watching->token);
    if (watching->has_thread)
        pthread_join(watching->thread, NULL);
    vfscale_watcher_free(watching->watcher);
    vfscale_token_free(watching->token);
    if (watching->box != NULL)
        watching->box->handle = NULL;
    free(watching);
}

/* Asks for the end of a thread: on_end follows. */
static void stop(struct watching *watching) {
    if (watching == NULL || watching->is_stopped)
        return;
    watching->is_stopped = 1;
    napi_release_threadsafe_function(watching->function, napi_tsfn_abort);
}

void watch_stop(void *handle) {
    struct watching *watching = handle;
    if (watching == NULL)
        return;
    watching->box = NULL;
    stop(watching);
}

static int begin(struct watching *watching, struct vfscale_task *task, const char *path, int tree) {
    int64_t result = vfscale_watcher_new(0, &watching->watcher);
    if (result < 0)
        return (int)result;
    result = vfscale_token_new(&watching->token);
    if (result >= 0)
        result = vfscale_watch(watching->watcher, task, path, tree);
    if (result < 0) {
        vfscale_watcher_free(watching->watcher);
        vfscale_token_free(watching->token);
    }
    return result < 0 ? (int)result : 0;
}

static napi_value negative(napi_env env, int result) {
    napi_value value;
    return napi_create_int32(env, result, &value) == napi_ok ? value : NULL;
}

static napi_value start(napi_env env, struct box *task, const char *path, int tree,
                        napi_value callback) {
    struct watching *watching = calloc(1, sizeof *watching);
    struct box *box = box_new(KIND_WATCHER, watching, NULL);
    napi_value name;
    int result = watching == NULL || box == NULL ? -ENOMEM
                                                 : begin(watching, task->handle, path, tree);
    if (result < 0) {
        free(watching);
        free(box);
        return negative(env, result);
    }
    if (napi_create_string_latin1(env, "watch", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_threadsafe_function(env, callback, NULL, name, 0, 1, watching, on_end, NULL,
                                        on_event, &watching->function) != napi_ok)
        result = -EAGAIN;
    if (result < 0) {
        vfscale_watcher_free(watching->watcher);
        vfscale_token_free(watching->token);
        free(watching);
        free(box);
        return negative(env, result);
    }
    if (pthread_create(&watching->thread, NULL, wait_for_events, watching) != 0) {
        free(box);
        stop(watching);
        return negative(env, -EAGAIN);
    }
    watching->has_thread = 1;
    watching->box = box;
    return box_value(env, box);
}

napi_value watch_start(napi_env env, napi_callback_info info) {
    napi_value values[4];
    size_t count = 4, size;
    struct box *task;
    napi_valuetype type;
    char path[PATH_ROOM];
    int32_t tree;
    if (napi_get_cb_info(env, info, &count, values, NULL, NULL) != napi_ok)
        return NULL;
    if (count < 4 || (task = box_of(env, values[0], KIND_TASK)) == NULL ||
        napi_get_value_string_utf8(env, values[1], path, sizeof path, &size) != napi_ok ||
        napi_get_value_int32(env, values[2], &tree) != napi_ok ||
        napi_typeof(env, values[3], &type) != napi_ok || type != napi_function) {
        napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "watch: a wrong argument");
        return NULL;
    }
    return start(env, task, path, tree, values[3]);
}

/* watchKeep(watcher, keep): whether it keeps the program running. */
napi_value watch_keep(napi_env env, napi_callback_info info) {
    napi_value values[2];
    size_t count = 2;
    struct box *box;
    struct watching *watching;
    bool keep;
    if (napi_get_cb_info(env, info, &count, values, NULL, NULL) != napi_ok || count < 2 ||
        (box = box_of(env, values[0], KIND_WATCHER)) == NULL ||
        napi_get_value_bool(env, values[1], &keep) != napi_ok)
        return NULL;
    watching = box->handle;
    if (watching != NULL && !watching->is_stopped)
        (keep ? napi_ref_threadsafe_function : napi_unref_threadsafe_function)(
            env, watching->function);
    return NULL;
}

static void run_stop(struct request *request) {
    if (request->box->handle != NULL)
        stop(request->box->handle);
}

const struct op watch_ops[] = {
    {"watchStop", "W", run_stop, 0},
    {NULL, NULL, NULL, 0},
};
