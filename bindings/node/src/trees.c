/* Trees, pools and tasks: what holds them, and the calls that make and end them.
 *
 * A tree is shared by number: every environment of the process finds it in the list. It lives
 * until it is closed, or no box holds it; a tree, its tasks and its pool are ended by the last
 * that holds them. */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "addon.h"

/** The branches of an image. */
struct pool {
    struct vfscale_pool *handle;
    int users;
};

struct tree {
    uint64_t id;
    struct vfscale_fs *handle;
    struct pool *pool;
    int users, is_closed;
    struct box *tasks;
    struct tree *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct tree *trees;
static uint64_t last_id;

/* Lets a pool go. */
static void pool_put(struct pool *pool) {
    int users;
    pthread_mutex_lock(&mutex);
    users = --pool->users;
    pthread_mutex_unlock(&mutex);
    if (users == 0) {
        /* Without effect if it was closed. */
        vfscale_pool_close(pool->handle);
        free(pool);
    }
}

/* Lets a tree go, and makes its changes durable if nobody holds it any more. */
static void tree_put(struct tree *tree) {
    struct tree **at;
    int users;
    pthread_mutex_lock(&mutex);
    users = --tree->users;
    if (users == 0) {
        for (at = &trees; *at != tree; at = &(*at)->next)
            ;
        *at = tree->next;
    }
    pthread_mutex_unlock(&mutex);
    if (users > 0)
        return;
    if (!tree->is_closed && vfscale_fs_close(tree->handle) < 0)
        vfscale_fs_abandon(tree->handle);
    if (tree->pool != NULL)
        pool_put(tree->pool);
    free(tree);
}

static void task_put(struct box *box) {
    struct tree *tree = box->owner;
    struct box **at;
    pthread_mutex_lock(&mutex);
    for (at = &tree->tasks; *at != NULL && *at != box; at = &(*at)->next)
        ;
    if (*at == box)
        *at = box->next;
    pthread_mutex_unlock(&mutex);
    /* Without effect if it was ended. */
    vfscale_task_free(box->handle);
    tree_put(tree);
}

void box_free(struct box *box) {
    switch (box->kind) {
    case KIND_TREE:
        tree_put(box->owner);
        break;
    case KIND_TASK:
        task_put(box);
        break;
    case KIND_POOL:
        pool_put(box->owner);
        break;
    case KIND_WATCHER:
        watch_stop(box->handle);
        break;
    }
    box->magic = 0;
    free(box);
}

/* Makes the box of a new tree; the tree is abandoned without memory. */
static void tree_result(struct request *request, struct vfscale_fs *handle, struct pool *pool) {
    struct tree *tree = calloc(1, sizeof *tree);
    struct box *box = box_new(KIND_TREE, handle, tree);
    if (tree == NULL || box == NULL) {
        free(tree);
        free(box);
        vfscale_fs_abandon(handle);
        request->result = -ENOMEM;
        return;
    }
    *tree = (struct tree){.handle = handle, .pool = pool, .users = 1};
    pthread_mutex_lock(&mutex);
    if (pool != NULL)
        pool->users++;
    tree->id = ++last_id;
    tree->next = trees;
    trees = tree;
    pthread_mutex_unlock(&mutex);
    request->made = box;
    request->shape = SHAPE_BOX;
}

static const char *given(const char *text) { return text[0] == 0 ? NULL : text; }

static void run_memory(struct request *request) {
    struct vfscale_memory_options options = {.text = given(request->paths[0])};
    struct vfscale_fs *handle;
    request->result = vfscale_fs_memory(&options, sizeof options, &handle);
    if (request->result >= 0)
        tree_result(request, handle, NULL);
}

/* n: size of an image that is made, VFSCALE_VOLUME_*. */
static void run_open_volume(struct request *request) {
    struct vfscale_volume_options options = {
        .create_size = (uint64_t)request->n[0],
        .flags = (uint32_t)request->n[1],
        .text = given(request->paths[1]),
    };
    struct vfscale_fs *handle;
    request->result = vfscale_fs_volume(request->paths[0], &options, sizeof options, &handle);
    if (request->result >= 0)
        tree_result(request, handle, NULL);
}

static void run_open_pool(struct request *request) {
    struct vfscale_pool_options options = {.flags = (uint32_t)request->n[0]};
    struct pool *pool = calloc(1, sizeof *pool);
    struct box *box = box_new(KIND_POOL, NULL, pool);
    request->result = -ENOMEM;
    if (pool != NULL && box != NULL) {
        pool->users = 1;
        request->result = vfscale_pool_new(request->paths[0], &options, sizeof options,
                                           &pool->handle);
    }
    if (request->result < 0) {
        free(pool);
        free(box);
        return;
    }
    box->handle = pool->handle;
    request->made = box;
    request->shape = SHAPE_BOX;
}

static void run_open_branch(struct request *request) {
    struct vfscale_volume_options options = {
        .flags = (uint32_t)request->n[0],
        .text = given(request->paths[1]),
    };
    struct vfscale_fs *handle;
    request->result = vfscale_pool_open(request->handle, request->paths[0], &options,
                                        sizeof options, &handle);
    if (request->result >= 0)
        tree_result(request, handle, request->box->owner);
}

static void run_tree_id(struct request *request) {
    const struct tree *tree = request->box->owner;
    request->result = tree->is_closed ? -EBADF : (int64_t)tree->id;
    if (tree->is_closed)
        request->text = strdup("the tree is closed");
}

/* Finds a tree by its number: -EBADF if it was closed, or never was. */
static void run_attach(struct request *request) {
    struct box *box = box_new(KIND_TREE, NULL, NULL);
    struct tree *tree;
    if (box == NULL) {
        request->result = -ENOMEM;
        return;
    }
    pthread_mutex_lock(&mutex);
    for (tree = trees; tree != NULL && tree->id != (uint64_t)request->n[0]; tree = tree->next)
        ;
    if (tree != NULL && !tree->is_closed) {
        tree->users++;
        box->owner = tree;
        box->handle = tree->handle;
    }
    pthread_mutex_unlock(&mutex);
    if (box->owner == NULL) {
        free(box);
        request->result = -EBADF;
        request->text = strdup("no tree of this process has the number, or it was closed");
        return;
    }
    request->made = box;
    request->shape = SHAPE_BOX;
}

static void run_sync_tree(struct request *request) {
    request->result = vfscale_fs_sync(request->handle);
}

/* Ends the tasks of a tree, in all environments, and the tree. It stays as it is if files are
 * open. */
static void run_close_tree(struct request *request) {
    struct tree *tree = request->box->owner;
    struct vfscale_usage usage;
    struct box *task;
    request->result = vfscale_fs_usage(tree->handle, &usage);
    if (request->result < 0)
        return;
    if (usage.open_files > 0) {
        request->result = -EBUSY;
        request->text = strdup("files of the tree are open, or watched: close them first");
        return;
    }
    pthread_mutex_lock(&mutex);
    for (task = tree->tasks; task != NULL; task = task->next)
        vfscale_task_free(task->handle);
    tree->tasks = NULL;
    pthread_mutex_unlock(&mutex);
    request->result = vfscale_fs_close(tree->handle);
    if (request->result != -EBUSY)
        tree->is_closed = 1;
}

static void run_close_pool(struct request *request) {
    request->result = vfscale_pool_close(request->handle);
}

/* Tasks. */

static void task_result(struct request *request, struct tree *tree, struct vfscale_task *task) {
    struct box *box = box_new(KIND_TASK, task, tree);
    if (box == NULL) {
        vfscale_task_free(task);
        request->result = -ENOMEM;
        return;
    }
    pthread_mutex_lock(&mutex);
    tree->users++;
    box->next = tree->tasks;
    tree->tasks = box;
    pthread_mutex_unlock(&mutex);
    request->made = box;
    request->shape = SHAPE_BOX;
}

/* n: user, group, capabilities; data: groups. */
static struct vfscale_credentials credentials(const struct request *request) {
    return (struct vfscale_credentials){
        .uid = (uint32_t)request->n[0],
        .gid = (uint32_t)request->n[1],
        .real_uid = (uint32_t)request->n[0],
        .real_gid = (uint32_t)request->n[1],
        .capabilities = (uint64_t)request->n[2],
        .groups = request->size < 4 ? NULL : (const uint32_t *)(const void *)request->data,
        .group_count = request->size / 4,
    };
}

static void run_new_task(struct request *request) {
    struct vfscale_credentials of = credentials(request);
    struct vfscale_task *task;
    request->result = request->paths[0][0] == 0
                          ? vfscale_task_new(request->handle, &of, sizeof of, &task)
                          : vfscale_task_in(request->handle, request->paths[0], &of, sizeof of,
                                            &task);
    if (request->result >= 0)
        task_result(request, request->box->owner, task);
}

static void run_fork_task(struct request *request) {
    struct vfscale_task *task;
    request->result = vfscale_task_fork(request->handle, &task);
    if (request->result >= 0)
        task_result(request, request->box->owner, task);
}

static void run_end_task(struct request *request) {
    request->result = vfscale_task_free(request->handle);
}

static void run_set_credentials(struct request *request) {
    struct vfscale_credentials of = credentials(request);
    request->result = vfscale_set_credentials(request->handle, &of, sizeof of);
}

static void run_umask(struct request *request) {
    request->result = vfscale_umask(request->handle, (mode_t)request->n[0]);
}

static void run_chdir(struct request *request) {
    request->result = vfscale_chdir(request->handle, request->paths[0]);
}

static void run_cwd(struct request *request) {
    char path[PATH_ROOM];
    ssize_t length = vfscale_getcwd(request->handle, path, sizeof path);
    request->result = length < 0 ? length : bytes_add(&request->out, path, (size_t)length);
    request->shape = SHAPE_TEXT;
}

/* n: VFSCALE_TRANSFER_*, whether it is to the host. The result: files, bytes, skipped files. */
static void run_transfer(struct request *request) {
    struct vfscale_transfer_options options = {.flags = (uint32_t)request->n[0]};
    struct vfscale_transferred done = {0};
    request->result = (request->n[1] ? vfscale_export : vfscale_import)(
        request->handle, request->paths[0], request->paths[1], &options, sizeof options, &done);
    if (request->result >= 0)
        request->result = list_number(request, (int64_t)done.files);
    if (request->result >= 0)
        request->result = list_number(request, (int64_t)done.bytes);
    if (request->result >= 0)
        request->result = list_number(request, (int64_t)done.skipped);
    request->shape = SHAPE_LIST;
}

const struct op trees_ops[] = {
    {"memory", "p", run_memory, 1},
    {"openVolume", "ppnn", run_open_volume, 1},
    {"openPool", "pn", run_open_pool, 1},
    {"openBranch", "Pppn", run_open_branch, 1},
    {"treeId", "T", run_tree_id, 1},
    {"attach", "n", run_attach, 1},
    {"syncTree", "T", run_sync_tree, 1},
    {"closeTree", "T", run_close_tree, 1},
    {"closePool", "P", run_close_pool, 1},
    {"newTask", "Tpnnnd", run_new_task, 1},
    {"forkTask", "t", run_fork_task, 1},
    {"endTask", "t", run_end_task, 0},
    {"setCredentials", "tnnnd", run_set_credentials, 1},
    {"umask", "tn", run_umask, 0},
    {"chdir", "tp", run_chdir, 0},
    {"cwd", "t", run_cwd, 0},
    {"transfer", "tppnn", run_transfer, 1},
    {NULL, NULL, NULL, 0},
};
