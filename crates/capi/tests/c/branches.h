/* Rebases, patches, layers, histories and views: a part of every_call.c. */

/* Puts branch `a`, which has /text, onto a branch with another one, and takes it back. */
static void rebase_in(struct vfscale_pool *pool) {
    struct vfscale_merged merged;
    struct vfscale_conflict conflict;

    IS(0, vfscale_pool_rebase(pool, "a", "main", VFSCALE_MERGE_DRY_RUN, &merged, NULL, 0));
    OK(vfscale_pool_fork(pool, "main", "base", 0));
    write_in(pool, "base", "1");
    IS(1, vfscale_pool_rebase(pool, "a", "base", VFSCALE_MERGE_OURS, &merged, &conflict, 1));
    CHECK(merged.done == 1 && conflict.kind == VFSCALE_CONFLICT_NAME);
    OK(vfscale_pool_delete(pool, "a"));
    OK(vfscale_pool_rename(pool, "a@1", "a"));
    OK(vfscale_pool_delete(pool, "base"));
    IS(-EINVAL, vfscale_pool_rebase(pool, "a", "main", 16, &merged, NULL, 0));
    IS(-EFAULT, vfscale_pool_rebase(pool, "a", "main", 0, NULL, NULL, 0));
    IS(-ENOENT, vfscale_pool_rebase(pool, "none", "main", 0, &merged, NULL, 0));
}

/* Writes what differs in branch `a` as a patch and as a layer, and applies both. */
static void apply_in(struct vfscale_pool *pool, const char *folder) {
    struct vfscale_applied applied;
    char path[4096];

    snprintf(path, sizeof path, "%s/difference", folder);
    IS(1, vfscale_pool_patch(pool, "main", "a", path));
    OK(vfscale_pool_apply(pool, "main", path, VFSCALE_APPLY_DRY_RUN, &applied));
    CHECK(applied.is_layer == 0 && applied.written == 1 && applied.removed == 0);
    CHECK(applied.untold == 0 && applied.done == 0);
    IS(2, vfscale_pool_layer(pool, "main", "a", path));
    OK(vfscale_pool_fork(pool, "main", "applied", 0));
    OK(vfscale_pool_apply(pool, "applied", path, 0, &applied));
    CHECK(applied.is_layer == 1 && applied.written == 2 && applied.done == 1);
    IS(-EINVAL, vfscale_pool_apply(pool, "applied", path, 2, &applied));
    IS(-EFAULT, vfscale_pool_apply(pool, "applied", path, 0, NULL));
    IS(-ENOENT, vfscale_pool_apply(pool, "none", path, 0, &applied));
    IS(-ENOENT, vfscale_pool_apply(pool, "applied", "/none/difference", 0, &applied));
    IS(-ENOENT, vfscale_pool_patch(pool, "main", "none", path));
    IS(-ENOENT, vfscale_pool_layer(pool, "main", "a", "/none/difference"));
    OK(vfscale_pool_delete(pool, "applied"));
    OK(remove(path));
}

/* Checkpoints of the branch `a`, the way back to one, the history, and a limit. */
static void history_in(struct vfscale_pool *pool) {
    struct vfscale_log_entry entries[16];
    struct vfscale_branch branch;
    char kept[136];
    ssize_t told, at;

    IS(-ERANGE, vfscale_pool_checkpoint(pool, "a", "text", kept, 8));
    IS(-EINVAL, vfscale_pool_checkpoint(pool, "a", "two\nlines", kept, sizeof kept));
    IS(3, vfscale_pool_checkpoint(pool, "a", "text", kept, sizeof kept));
    CHECK(strcmp(kept, "a@2") == 0);
    write_in(pool, "a", "behind the checkpoint");
    IS(-ERANGE, vfscale_pool_rollback_to(pool, "a", "a@2", kept, 8));
    IS(-EINVAL, vfscale_pool_rollback_to(pool, "a", "main", kept, sizeof kept));
    IS(3, vfscale_pool_rollback_to(pool, "a", "a@2", kept, sizeof kept));
    CHECK(strcmp(kept, "a@3") == 0);
    IS(-ENOENT, vfscale_pool_log(pool, "none", NULL, 0));
    told = vfscale_pool_log(pool, "a", entries, 16);
    CHECK(told >= 3 && told <= 16 && told == vfscale_pool_log(pool, "a", NULL, 0));
    CHECK(entries[0].kind == VFSCALE_LOG_NOW && entries[0].time == INT64_MIN);
    CHECK(entries[0].padding == 0 && entries[0].reserved[0] == 0);
    for (at = 0; at < told && entries[at].kind != VFSCALE_LOG_CHECKPOINT; at++)
        ;
    CHECK(at < told && strcmp(entries[at].text, "text") == 0 && entries[at].time > 0);
    CHECK(entries[at].node == entries[0].parent);
    OK(vfscale_pool_delete(pool, "a@3"));
    OK(vfscale_pool_delete(pool, "a@2"));

    OK(vfscale_pool_set_limit(pool, "a", 1 << 30));
    IS(-EINVAL, vfscale_pool_set_limit(pool, "a", 4096));
    CHECK(vfscale_pool_branches(pool, &branch, 1) > 0);
    CHECK(strcmp(branch.name, "a") == 0 && branch.limit == 1 << 30);
    OK(vfscale_pool_set_limit(pool, "a", 0));
}

/* A view of what `branches` has left, and an upper layer as of a program above it. */
static void views(const char *folder) {
    struct vfscale_pool *pool;
    char path[4096], view[4096], upper[4096], work[4096], file[4200], kept[136];
    FILE *written;
    ssize_t taken;

    snprintf(path, sizeof path, "%s/branches.vfs", folder);
    snprintf(view, sizeof view, "%s/view", folder);
    snprintf(upper, sizeof upper, "%s/upper", folder);
    snprintf(work, sizeof work, "%s/work", folder);
    snprintf(file, sizeof file, "%s/above", upper);
    OK(vfscale_pool_new(path, NULL, 0, &pool));
    OK(vfscale_pool_fork(pool, "main", "base", VFSCALE_FORK_READ_ONLY));

    IS(-EINVAL, vfscale_pool_view(pool, "main", view));
    IS(-ENOENT, vfscale_pool_view(pool, "none", view));
    IS(-EFAULT, vfscale_pool_view(pool, "base", NULL));
    OK(vfscale_pool_view(pool, "base", view));

    CHECK(mkdir(upper, 0755) == 0 && mkdir(work, 0755) == 0);
    written = fopen(file, "w");
    CHECK(written != NULL && fputs("above", written) >= 0 && fclose(written) == 0);
    IS(-EINVAL, vfscale_pool_ingest(pool, "main", "base", view, upper, work, 64, kept,
                                    sizeof kept));
    IS(-ERANGE, vfscale_pool_ingest(pool, "main", "base", view, upper, work,
                                    VFSCALE_INGEST_USERXATTR, kept, 8));
    IS(-ENOENT, vfscale_pool_ingest(pool, "main", "base", file, "/none", work,
                                    VFSCALE_INGEST_USERXATTR, kept, sizeof kept));
    taken = vfscale_pool_ingest(pool, "main", "base", view, upper, work, VFSCALE_INGEST_USERXATTR,
                                kept, sizeof kept);
    if (taken != -ENOSYS) { /* Valgrind knows no openat2. */
        IS(0, taken);
        /* The branch has changed since: another one has the changes. */
        IS(13, vfscale_pool_ingest(pool, "main", "base", view, upper, work,
                                   VFSCALE_INGEST_USERXATTR, kept, sizeof kept));
        CHECK(strcmp(kept, "main@native 0") == 0);
        OK(vfscale_pool_delete(pool, kept));
    }
    OK(vfscale_pool_delete(pool, "base"));
    OK(vfscale_pool_close(pool));
}
