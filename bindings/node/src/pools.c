/* Calls on the branches of an image. Results are lists of numbers and texts, each of one length. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "addon.h"

#define POOL ((struct vfscale_pool *)request->handle)
#define NAME_ROOM 136

/* Adds to the list, unless an earlier addition has failed. */
static void number(struct request *request, int64_t value) {
    if (request->result >= 0)
        request->result = list_number(request, value);
}

static void text(struct request *request, const char *value, size_t size) {
    if (request->result >= 0)
        request->result = list_text(request, value, size);
}

static void name_result(struct request *request, const char *name, ssize_t length) {
    request->result = length < 0 ? length : bytes_add(&request->out, name, (size_t)length);
    request->shape = SHAPE_TEXT;
}

static void run_fork(struct request *request) {
    request->result = vfscale_pool_fork(POOL, request->paths[0], request->paths[1],
                                        (uint32_t)request->n[0]);
}

static void run_delete(struct request *request) {
    request->result = vfscale_pool_delete(POOL, request->paths[0]);
}

static void run_rename(struct request *request) {
    request->result = vfscale_pool_rename(POOL, request->paths[0], request->paths[1]);
}

static void run_set_limit(struct request *request) {
    request->result = vfscale_pool_set_limit(POOL, request->paths[0], (uint64_t)request->n[0]);
}

static void run_adopt(struct request *request) {
    request->result = vfscale_pool_adopt(POOL, request->paths[0], request->paths[1]);
}

static void run_checkpoint(struct request *request) {
    char name[NAME_ROOM];
    name_result(request, name, vfscale_pool_checkpoint(POOL, request->paths[0], request->paths[1],
                                                       name, sizeof name));
}

static void run_rollback(struct request *request) {
    char kept[NAME_ROOM];
    const char *name = request->paths[0], *to = request->paths[1];
    name_result(request, kept,
                to[0] == 0 ? vfscale_pool_rollback(POOL, name, kept, sizeof kept)
                           : vfscale_pool_rollback_to(POOL, name, to, kept, sizeof kept));
}

static void run_branches(struct request *request) {
    struct vfscale_branch *branches = NULL, *larger;
    ssize_t room = 0, count, at;
    while ((count = vfscale_pool_branches(POOL, branches, (size_t)room)) > room) {
        larger = realloc(branches, (size_t)(count + 8) * sizeof *branches);
        if (larger == NULL) {
            free(branches);
            request->result = -ENOMEM;
            return;
        }
        branches = larger;
        room = count + 8;
    }
    request->result = count;
    for (at = 0; at < count; at++) {
        text(request, branches[at].name, strlen(branches[at].name));
        number(request, (int64_t)branches[at].size);
        number(request, (int64_t)branches[at].own);
        number(request, branches[at].read_only);
        number(request, branches[at].depth);
        number(request, (int64_t)branches[at].limit);
    }
    free(branches);
    request->shape = SHAPE_LIST;
}

static void run_usage(struct request *request) {
    struct vfscale_pool_usage usage;
    request->result = vfscale_pool_usage(POOL, &usage);
    number(request, (int64_t)usage.size);
    number(request, (int64_t)usage.free);
    request->shape = SHAPE_LIST;
}

static void run_diff(struct request *request) {
    struct vfscale_difference *found = malloc(sizeof *found);
    struct vfscale_diff *diff;
    int more = 1;
    request->result = found == NULL ? -ENOMEM
                                    : vfscale_pool_diff(POOL, request->paths[0],
                                                        request->paths[1], &diff);
    if (request->result < 0) {
        free(found);
        return;
    }
    while (request->result >= 0 && (more = vfscale_next_difference(diff, found)) > 0) {
        number(request, found->kind);
        number(request, found->changes);
        text(request, found->path, strlen(found->path));
        text(request, found->other, strlen(found->other));
    }
    if (more < 0)
        request->result = more;
    vfscale_diff_free(diff);
    free(found);
    request->shape = SHAPE_LIST;
}

static void merge_result(struct request *request, const struct vfscale_merged *merged,
                         const struct vfscale_conflict *conflicts, ssize_t count) {
    ssize_t at;
    number(request, (int64_t)merged->added);
    number(request, (int64_t)merged->removed);
    number(request, (int64_t)merged->moved);
    number(request, (int64_t)merged->changed);
    number(request, (int64_t)merged->texts);
    number(request, (int64_t)merged->done);
    for (at = 0; at < count; at++) {
        number(request, conflicts[at].kind);
        text(request, conflicts[at].path, strlen(conflicts[at].path));
        text(request, conflicts[at].beside, strlen(conflicts[at].beside));
    }
    request->shape = SHAPE_LIST;
}

/* Merges, or with n[1] rebases. A dry run tells how many conflicts there are. If a writer of
 * the open branch makes more than 16 others until the merge, the last are not in the list. */
static void run_merge(struct request *request) {
    ssize_t (*merge)(struct vfscale_pool *, const char *, const char *, uint32_t,
                     struct vfscale_merged *, struct vfscale_conflict *, size_t) =
        request->n[1] ? vfscale_pool_rebase : vfscale_pool_merge;
    const char *a = request->paths[0], *b = request->paths[1];
    uint32_t flags = (uint32_t)request->n[0];
    struct vfscale_merged merged;
    struct vfscale_conflict *conflicts = NULL;
    ssize_t room, count;

    request->result = room = merge(POOL, a, b, flags | VFSCALE_MERGE_DRY_RUN, &merged, NULL, 0);
    if (room < 0)
        return;
    room += 16;
    conflicts = calloc((size_t)room, sizeof *conflicts);
    if (conflicts == NULL) {
        request->result = -ENOMEM;
        return;
    }
    request->result = count = merge(POOL, a, b, flags, &merged, conflicts, (size_t)room);
    if (count >= 0)
        merge_result(request, &merged, conflicts, count < room ? count : room);
    free(conflicts);
}

static void run_log(struct request *request) {
    struct vfscale_log_entry *entries = NULL, *larger;
    ssize_t room = 0, count, at;
    while ((count = vfscale_pool_log(POOL, request->paths[0], entries, (size_t)room)) > room) {
        larger = realloc(entries, (size_t)(count + 8) * sizeof *entries);
        if (larger == NULL) {
            free(entries);
            request->result = -ENOMEM;
            return;
        }
        entries = larger;
        room = count + 8;
    }
    request->result = count;
    for (at = 0; at < count; at++) {
        number(request, entries[at].kind);
        number(request, (int64_t)entries[at].node);
        number(request, (int64_t)entries[at].parent);
        /* In milliseconds, which a number of JavaScript can have. */
        number(request, entries[at].time == INT64_MIN ? -1 : entries[at].time / 1000000);
        text(request, entries[at].text, strlen(entries[at].text));
    }
    free(entries);
    request->shape = SHAPE_LIST;
}

/* Writes a patch, or with n[0] a layer, to a file of the host. */
static void run_patch(struct request *request) {
    request->result = (request->n[0] ? vfscale_pool_layer : vfscale_pool_patch)(
        POOL, request->paths[0], request->paths[1], request->paths[2]);
}

static void run_apply(struct request *request) {
    struct vfscale_applied applied;
    request->result = vfscale_pool_apply(POOL, request->paths[0], request->paths[1],
                                         (uint32_t)request->n[0], &applied);
    number(request, (int64_t)applied.is_layer);
    number(request, (int64_t)applied.written);
    number(request, (int64_t)applied.removed);
    number(request, (int64_t)applied.untold);
    number(request, (int64_t)applied.done);
    request->shape = SHAPE_LIST;
}

const struct op pools_ops[] = {
    {"poolFork", "Pppn", run_fork, 1},
    {"poolDelete", "Pp", run_delete, 1},
    {"poolRename", "Ppp", run_rename, 1},
    {"poolSetLimit", "Ppn", run_set_limit, 1},
    {"poolAdopt", "Ppp", run_adopt, 1},
    {"poolCheckpoint", "Ppp", run_checkpoint, 1},
    {"poolRollback", "Ppp", run_rollback, 1},
    {"poolBranches", "P", run_branches, 1},
    {"poolUsage", "P", run_usage, 1},
    {"poolDiff", "Ppp", run_diff, 1},
    {"poolMerge", "Pppnn", run_merge, 1},
    {"poolLog", "Pp", run_log, 1},
    {"poolPatch", "Ppppn", run_patch, 1},
    {"poolApply", "Pppn", run_apply, 1},
    {NULL, NULL, NULL, 0},
};
