/* Functions of JavaScript: arguments, results, and threads. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "addon.h"

#define ARGUMENTS_MAX 10
#define BOX_MAGIC 0x76667363u

int bytes_reserve(struct bytes *bytes, size_t size) {
    size_t room = bytes->room * 2 + size + 64;
    char *grown;
    if (size <= bytes->room - bytes->size)
        return 0;
    if ((grown = realloc(bytes->data, room)) == NULL)
        return -ENOMEM;
    bytes->data = grown;
    bytes->room = room;
    return 0;
}

int bytes_add(struct bytes *bytes, const void *data, size_t size) {
    if (bytes_reserve(bytes, size) < 0)
        return -ENOMEM;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return 0;
}

int list_number(struct request *request, int64_t number) {
    int result = bytes_add(&request->out, "n", 1);
    return result < 0 ? result : bytes_add(&request->out, &number, sizeof number);
}

int list_text(struct request *request, const char *text, size_t size) {
    int result = bytes_add(&request->out, "t", 1);
    if (result == 0)
        result = bytes_add(&request->out, &size, sizeof size);
    return result < 0 ? result : bytes_add(&request->out, text, size);
}

/* Boxes. */

struct box *box_new(enum kind kind, void *handle, void *owner) {
    struct box *box = calloc(1, sizeof *box);
    if (box != NULL)
        *box = (struct box){.magic = BOX_MAGIC, .kind = kind, .handle = handle, .owner = owner};
    return box;
}

static void box_finalize(napi_env env, void *data, void *hint) {
    (void)env;
    (void)hint;
    box_free(data);
}

napi_value box_value(napi_env env, struct box *box) {
    napi_value value;
    if (napi_create_external(env, box, box_finalize, NULL, &value) == napi_ok)
        return value;
    box_free(box);
    return NULL;
}

struct box *box_of(napi_env env, napi_value value, enum kind kind) {
    napi_valuetype type;
    void *data;
    struct box *box;
    if (napi_typeof(env, value, &type) != napi_ok || type != napi_external ||
        napi_get_value_external(env, value, &data) != napi_ok)
        return NULL;
    box = data;
    return box->magic == BOX_MAGIC && box->kind == kind ? box : NULL;
}

/* Arguments. */

static napi_value thrown(napi_env env, const char *call, const char *text) {
    char message[128];
    snprintf(message, sizeof message, "%s: %s", call, text);
    napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", message);
    return NULL;
}

/* Returns the bytes of a string in UTF-8, in memory of their own, with a zero behind them. */
static char *text_copy(napi_env env, napi_value value, size_t *size) {
    char *text;
    if (napi_get_value_string_utf8(env, value, NULL, 0, size) != napi_ok)
        return NULL;
    text = malloc(*size + 1);
    if (text != NULL)
        napi_get_value_string_utf8(env, value, text, *size + 1, size);
    return text;
}

/* Reads a path into `room`, or, if that is NULL, into memory of its own. */
static char *read_path(napi_env env, napi_value value, char *room) {
    napi_valuetype type;
    char *path = room == NULL ? malloc(PATH_ROOM) : room;
    void *data;
    size_t size;
    if (path == NULL || napi_typeof(env, value, &type) != napi_ok)
        goto failed;
    if (type == napi_string) {
        if (napi_get_value_string_utf8(env, value, path, PATH_ROOM, &size) == napi_ok &&
            strlen(path) == size)
            return path;
    } else if (napi_get_buffer_info(env, value, &data, &size) == napi_ok) {
        size = size < PATH_ROOM - 1 ? size : PATH_ROOM - 1;
        if (size > 0)
            memcpy(path, data, size);
        path[size] = 0;
        if (strlen(path) == size)
            return path;
    }
failed:
    if (path != room)
        free(path);
    return NULL;
}

/* Reads data: a view, or a text. A call that waits gets a copy, which no change of the view
 * reaches. */
static int read_data(napi_env env, napi_value value, struct request *request, int waits) {
    napi_valuetype type;
    void *data = NULL;
    if (napi_typeof(env, value, &type) != napi_ok)
        return 0;
    if (type == napi_string) {
        struct environment *environment = request->environment;
        if (!waits && environment != NULL &&
            napi_get_value_string_latin1(env, value, NULL, 0, &request->size) == napi_ok &&
            request->size < SCRATCH_SIZE / 3) {
            request->data = environment->scratch;
            return napi_get_value_string_utf8(env, value, request->data, SCRATCH_SIZE,
                                              &request->size) == napi_ok;
        }
        request->owned = request->data = text_copy(env, value, &request->size);
        return request->data != NULL;
    }
    if (napi_get_buffer_info(env, value, &data, &request->size) != napi_ok)
        return 0;
    if (!waits) {
        request->data = data;
        return 1;
    }
    request->owned = request->data = malloc(request->size + 1);
    if (request->data != NULL && request->size > 0)
        memcpy(request->data, data, request->size);
    return request->data != NULL;
}

/* Reads a view to write to: a call that waits writes to memory of its own, which is copied when the
 * view is known to be there. */
static int read_view(napi_env env, napi_value value, struct request *request, int waits) {
    void *data = NULL;
    if (napi_get_buffer_info(env, value, &data, &request->size) != napi_ok)
        return 0;
    if (!waits) {
        request->data = data;
        return 1;
    }
    return napi_create_reference(env, value, 1, &request->view) == napi_ok;
}

static int read_argument(napi_env env, char kind, napi_value value, struct request *request,
                         int waits) {
    int at;
    char *room;
    switch (kind) {
    case 'T':
    case 't':
    case 'P':
    case 'W':
        request->box = box_of(env, value, kind == 'T'   ? KIND_TREE
                                          : kind == 't' ? KIND_TASK
                                          : kind == 'P' ? KIND_POOL
                                                        : KIND_WATCHER);
        if (request->box != NULL)
            request->handle = request->box->handle;
        return request->box != NULL;
    case 'p':
        at = request->paths_read++;
        room = waits ? NULL : request->rooms + (size_t)at * PATH_ROOM;
        return (request->paths[at] = read_path(env, value, room)) != NULL;
    case 'n':
        return napi_get_value_int64(env, value, &request->n[request->numbers_read++]) == napi_ok;
    case 'f':
        return napi_get_value_double(env, value, &request->f[request->floats_read++]) == napi_ok;
    case 'd':
        return read_data(env, value, request, waits);
    case 'o':
        return read_view(env, value, request, waits);
    }
    return 0;
}

/* Results. */

static int is_ascii(const char *data, size_t size) {
    uint64_t word, all = 0;
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        memcpy(&word, data + at, 8);
        all |= word;
    }
    for (; at < size; at++)
        all |= (unsigned char)data[at];
    return (all & 0x8080808080808080u) == 0;
}

static napi_status text_value(napi_env env, const char *data, size_t size, napi_value *value) {
    data = data == NULL ? "" : data;
    return is_ascii(data, size) ? napi_create_string_latin1(env, data, size, value)
                                : napi_create_string_utf8(env, data, size, value);
}

static void bytes_finalize(napi_env env, void *data, void *hint) {
    (void)env;
    (void)hint;
    free(data);
}

/* Memory of others is freed by a later turn of the loop, so what is made at once is copied. */
static napi_status buffer_value(napi_env env, struct request *request, napi_value *value) {
    struct bytes *bytes = &request->out;
    void *copied;
    napi_status status;
    if (bytes->size > SCRATCH_SIZE && request->environment == NULL) {
        status = napi_create_external_buffer(env, bytes->size, bytes->data, bytes_finalize, NULL,
                                             value);
        if (status == napi_ok) {
            *bytes = (struct bytes){0};
            return status;
        }
        /* Some programs with V8 permit no memory of others. */
    }
    return napi_create_buffer_copy(env, bytes->size, bytes->data, &copied, value);
}

static napi_status list_value(napi_env env, struct bytes *bytes, napi_value *list) {
    size_t at = 0, size;
    uint32_t count = 0;
    int64_t number;
    napi_value value;
    napi_status status = napi_create_array(env, list);
    while (status == napi_ok && at < bytes->size) {
        if (bytes->data[at++] == 'n') {
            memcpy(&number, bytes->data + at, sizeof number);
            at += sizeof number;
            status = napi_create_int64(env, number, &value);
        } else {
            memcpy(&size, bytes->data + at, sizeof size);
            at += sizeof size;
            status = text_value(env, bytes->data + at, size, &value);
            at += size;
        }
        if (status == napi_ok)
            status = napi_set_element(env, *list, count++, value);
    }
    return status;
}

static napi_value failure(napi_env env, struct request *request) {
    napi_value text, value, number;
    if (request->text == NULL)
        return napi_create_int64(env, request->result, &value) == napi_ok ? value : NULL;
    if (napi_create_string_utf8(env, request->text, NAPI_AUTO_LENGTH, &text) == napi_ok &&
        napi_create_error(env, NULL, text, &value) == napi_ok &&
        napi_create_int64(env, request->result, &number) == napi_ok &&
        napi_set_named_property(env, value, "errno", number) == napi_ok)
        return value;
    return NULL;
}

/* Makes the value of a result; NULL if JavaScript can't have it. */
static napi_value result_value(napi_env env, struct request *request) {
    napi_value value = NULL;
    napi_status status = napi_generic_failure;
    struct environment *environment;
    int at;
    if (request->result < 0)
        return failure(env, request);
    switch (request->shape) {
    case SHAPE_NUMBER:
        status = napi_create_int64(env, request->result, &value);
        break;
    case SHAPE_SCRATCH:
        status = request->n[1] ? text_value(env, request->environment->scratch,
                                            (size_t)request->result, &value)
                               : napi_create_int64(env, request->result, &value);
        break;
    case SHAPE_TEXT:
        status = text_value(env, request->out.data, request->out.size, &value);
        break;
    case SHAPE_BUFFER:
        status = buffer_value(env, request, &value);
        break;
    case SHAPE_FIELDS:
        if (napi_get_instance_data(env, (void **)&environment) != napi_ok)
            break;
        for (at = 0; at < FIELDS_MAX; at++) {
            environment->exact[at] = request->fields[at];
            environment->numbers[at] = at < 10 ? (double)request->fields[at]
                                               : (double)(int64_t)request->fields[at];
        }
        status = napi_create_int64(env, 0, &value);
        break;
    case SHAPE_LIST:
        status = list_value(env, &request->out, &value);
        break;
    case SHAPE_BOX:
        value = box_value(env, request->made);
        request->made = NULL;
        return value;
    }
    if (status == napi_ok)
        return value;
    /* A text or buffer that is longer than JavaScript's can be. */
    napi_get_and_clear_last_exception(env, &value);
    request->result = -EFBIG;
    return failure(env, request);
}

/* Calls. */

static void request_run(struct request *request) {
    request->op->run(request);
    if (request->result < 0 && request->op->tells && request->text == NULL)
        request->text = strdup(vfscale_error());
}

static void request_clear(struct request *request) {
    free(request->owned);
    free(request->out.data);
    free(request->text);
    if (request->made != NULL)
        box_free(request->made);
}

static napi_value call_now(napi_env env, const struct op *op, size_t count, napi_value *values,
                           struct environment *environment) {
    char rooms[2 * PATH_ROOM];
    struct request request = {.op = op, .environment = environment, .rooms = rooms};
    napi_value value;
    size_t at;
    for (at = 0; op->arguments[at] != 0; at++)
        if (at >= count || !read_argument(env, op->arguments[at], values[at], &request, 0)) {
            request_clear(&request);
            return thrown(env, op->name, "a wrong argument");
        }
    request_run(&request);
    value = result_value(env, &request);
    request_clear(&request);
    return value;
}

static void request_free(napi_env env, struct request *request) {
    int at;
    for (at = 0; at < request->paths_read; at++)
        free(request->paths[at]);
    if (request->callback != NULL)
        napi_delete_reference(env, request->callback);
    if (request->view != NULL)
        napi_delete_reference(env, request->view);
    if (request->holder != NULL)
        napi_delete_reference(env, request->holder);
    if (request->work != NULL)
        napi_delete_async_work(env, request->work);
    request_clear(request);
    free(request);
}

static void on_pool(napi_env env, void *data) {
    struct request *request = data;
    (void)env;
    /* Memory that the call writes to in place of a view. */
    if (request->view != NULL) {
        request->owned = request->data = malloc(request->size + 1);
        if (request->data == NULL) {
            request->result = -ENOMEM;
            return;
        }
    }
    request_run(request);
}

/* Copies what was read to the view, as far as that still has room. */
static void fill_view(napi_env env, struct request *request) {
    napi_value view;
    void *data;
    size_t size, offset = (size_t)request->n[1];
    if (napi_get_reference_value(env, request->view, &view) != napi_ok || view == NULL ||
        napi_get_buffer_info(env, view, &data, &size) != napi_ok || size < offset)
        return;
    size -= offset;
    if ((uint64_t)request->result < size)
        size = (size_t)request->result;
    if (size > 0)
        memcpy((char *)data + offset, request->data + offset, size);
}

static void after_pool(napi_env env, napi_status status, void *data) {
    struct request *request = data;
    napi_value callback, value, receiver;
    if (status == napi_cancelled)
        request->result = -ECANCELED;
    if (request->view != NULL && request->result > 0)
        fill_view(env, request);
    value = result_value(env, request);
    if (value != NULL && napi_get_undefined(env, &receiver) == napi_ok &&
        napi_get_reference_value(env, request->callback, &callback) == napi_ok) {
        request_free(env, request);
        napi_call_function(env, receiver, callback, 1, &value, NULL);
        return;
    }
    request_free(env, request);
}

static napi_value call_later(napi_env env, const struct op *op, napi_value *values,
                             napi_value callback) {
    struct request *request = calloc(1, sizeof *request);
    napi_value name;
    size_t at;
    if (request == NULL)
        return thrown(env, op->name, "out of memory");
    request->op = op;
    for (at = 0; op->arguments[at] != 0; at++)
        if (!read_argument(env, op->arguments[at], values[at], request, 1)) {
            request_free(env, request);
            return thrown(env, op->name, "a wrong argument");
        }
    if (napi_create_reference(env, callback, 1, &request->callback) != napi_ok ||
        (request->box != NULL &&
         napi_create_reference(env, values[0], 1, &request->holder) != napi_ok) ||
        napi_create_string_latin1(env, op->name, NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_async_work(env, NULL, name, on_pool, after_pool, request, &request->work) !=
            napi_ok ||
        napi_queue_async_work(env, request->work) != napi_ok) {
        request_free(env, request);
        return thrown(env, op->name, "it can't be queued");
    }
    return NULL;
}

static napi_value invoke(napi_env env, napi_callback_info info) {
    napi_value values[ARGUMENTS_MAX];
    size_t count = ARGUMENTS_MAX, wanted;
    void *data;
    const struct op *op;
    napi_valuetype type;
    struct environment *environment;
    if (napi_get_cb_info(env, info, &count, values, NULL, &data) != napi_ok)
        return NULL;
    op = data;
    wanted = strlen(op->arguments);
    if (count > wanted && napi_typeof(env, values[wanted], &type) == napi_ok &&
        type == napi_function)
        return call_later(env, op, values, values[wanted]);
    if (napi_get_instance_data(env, (void **)&environment) != napi_ok)
        return NULL;
    return call_now(env, op, count, values, environment);
}

/* The module. */

static int export_ops(napi_env env, napi_value exports, const struct op *ops) {
    napi_value function;
    for (; ops->name != NULL; ops++)
        if (napi_create_function(env, ops->name, NAPI_AUTO_LENGTH, invoke, (void *)ops,
                                 &function) != napi_ok ||
            napi_set_named_property(env, exports, ops->name, function) != napi_ok)
            return 0;
    return 1;
}

static void environment_free(napi_env env, void *data, void *hint) {
    (void)env;
    (void)hint;
    free(data);
}

/* Makes memory that JavaScript sees under a name for as long as the environment lives. */
static void *shared(napi_env env, napi_value exports, const char *name, size_t size) {
    napi_value memory;
    napi_ref kept;
    void *data;
    if (napi_create_arraybuffer(env, size, &data, &memory) != napi_ok ||
        napi_create_reference(env, memory, 1, &kept) != napi_ok ||
        napi_set_named_property(env, exports, name, memory) != napi_ok)
        return NULL;
    return data;
}

NAPI_MODULE_INIT() {
    struct environment *environment = calloc(1, sizeof *environment);
    napi_value watch, keep, version;
    if (environment == NULL ||
        napi_set_instance_data(env, environment, environment_free, NULL) != napi_ok)
        return NULL;
    environment->numbers = shared(env, exports, "numbers", FIELDS_MAX * sizeof(double));
    environment->exact = shared(env, exports, "exact", FIELDS_MAX * sizeof(uint64_t));
    environment->scratch = shared(env, exports, "scratch", SCRATCH_SIZE);
    if (environment->numbers == NULL || environment->exact == NULL ||
        environment->scratch == NULL || !export_ops(env, exports, calls_ops) ||
        !export_ops(env, exports, whole_ops) || !export_ops(env, exports, trees_ops) ||
        !export_ops(env, exports, pools_ops) || !export_ops(env, exports, watch_ops) ||
        napi_create_function(env, "watch", NAPI_AUTO_LENGTH, watch_start, NULL, &watch) !=
            napi_ok ||
        napi_set_named_property(env, exports, "watch", watch) != napi_ok ||
        napi_create_function(env, "watchKeep", NAPI_AUTO_LENGTH, watch_keep, NULL, &keep) !=
            napi_ok ||
        napi_set_named_property(env, exports, "watchKeep", keep) != napi_ok ||
        napi_create_string_utf8(env, vfscale_version(), NAPI_AUTO_LENGTH, &version) != napi_ok ||
        napi_set_named_property(env, exports, "version", version) != napi_ok)
        return NULL;
    return exports;
}
