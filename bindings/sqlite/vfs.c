/* The VFS, its registration, and the loadable extension. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include "file.h"

/** A registered VFS. */
struct registered {
    sqlite3_vfs vfs;
    /** The VFS that has temporary files, time and random bytes. */
    sqlite3_vfs *system;
    /** The tree of the task, or NULL for images. */
    struct tree *tree;
};

static struct registered *of(sqlite3_vfs *vfs) { return vfs->pAppData; }

/* Opens a file in a tree, for reading only if it can't be written. */
static int open_in(struct tree *tree, const char *path, int flags, int *opened_with) {
    int how = flags & SQLITE_OPEN_READWRITE ? O_RDWR : O_RDONLY, fd;

    how |= flags & SQLITE_OPEN_CREATE ? O_CREAT : 0;
    how |= flags & SQLITE_OPEN_EXCLUSIVE ? O_EXCL | O_NOFOLLOW : 0;
    fd = vfscale_open(tree->task, path, how | O_CLOEXEC, 0644);
    if ((fd == -EACCES || fd == -EROFS || fd == -EPERM) && (how & O_RDWR)) {
        fd = vfscale_open(tree->task, path, O_RDONLY | O_CLOEXEC, 0);
        flags = (flags & ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) | SQLITE_OPEN_READONLY;
    }
    *opened_with = flags;
    return fd;
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *sqlite, int flags,
                    int *out_flags) {
    struct file *file = (struct file *)sqlite;
    const char *path;
    int result, fd, opened_with;

    if (name == NULL)
        return of(vfs)->system->xOpen(of(vfs)->system, name, sqlite, flags, out_flags);
    memset(file, 0, sizeof *file);
    result = tree_get(of(vfs)->tree, name, &file->tree, &path);
    if (result != SQLITE_OK)
        return result;
    fd = open_in(file->tree, path, flags, &opened_with);
    if (fd < 0) {
        sqlite3_log(SQLITE_CANTOPEN, "%s", vfscale_error());
        tree_put(file->tree);
        return fd == -EISDIR ? SQLITE_CANTOPEN_ISDIR : SQLITE_CANTOPEN;
    }
    if (flags & SQLITE_OPEN_DELETEONCLOSE)
        vfscale_unlink(file->tree->task, path);
    file->fd = fd;
    file->vfs_name = vfs->zName;
    file->base.pMethods = &file_methods;
    if (out_flags != NULL)
        *out_flags = opened_with;
    return SQLITE_OK;
}

/* Makes the names of the directory of `path` durable. */
static int sync_directory(struct tree *tree, const char *path) {
    const char *end = strrchr(path, '/');
    char *dir = end == NULL || end == path ? strdup("/") : strndup(path, (size_t)(end - path));
    int fd = dir == NULL ? -ENOMEM : vfscale_open(tree->task, dir, O_RDONLY | O_DIRECTORY, 0);
    int result = fd < 0 ? fd : vfscale_fsync(tree->task, fd);

    if (fd >= 0)
        vfscale_close(tree->task, fd);
    free(dir);
    return result < 0 ? SQLITE_IOERR_DIR_FSYNC : SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int syncs) {
    struct tree *tree;
    const char *path;
    int result = tree_get(of(vfs)->tree, name, &tree, &path), removed;

    if (result != SQLITE_OK)
        return result;
    removed = vfscale_unlink(tree->task, path);
    if (removed < 0)
        result = removed == -ENOENT ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE;
    else if (syncs)
        result = sync_directory(tree, path);
    removed = tree_put(tree);
    return result != SQLITE_OK ? result : removed;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int want, int *may) {
    struct tree *tree;
    const char *path;
    struct vfscale_stat st;
    int result = tree_get(of(vfs)->tree, name, &tree, &path);

    if (result != SQLITE_OK)
        return result;
    if (want == SQLITE_ACCESS_EXISTS)
        /* An empty file is as good as none: a journal that was cut off. */
        *may = vfscale_stat(tree->task, path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > 0);
    else
        *may = vfscale_access(tree->task, path, R_OK | W_OK) == 0;
    return tree_put(tree);
}

/* Makes the path of the image absolute: the working directory of the process may change. */
static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int size, char *full) {
    size_t length = place_length(name), image = length, at;
    char *path, *real;

    if (of(vfs)->tree != NULL || length == 0) {
        sqlite3_snprintf(size, full, "%s%s", *name == '/' ? "" : "/", name);
        return strlen(name) + 2 > (size_t)size ? SQLITE_CANTOPEN : SQLITE_OK;
    }
    for (at = 0; at < length; at++)
        if (name[at] == ':' && !(at == 3 && memcmp(name, "rbd", 3) == 0))
            image = at;
    path = strndup(name, image);
    real = path == NULL ? NULL : realpath(path, NULL);
    /* An image that is not there is told when it is opened. */
    sqlite3_snprintf(size, full, "%s%s", real != NULL ? real : path, name + image);
    at = strlen(full);
    free(real);
    free(path);
    return at + 1 >= (size_t)size ? SQLITE_CANTOPEN : SQLITE_OK;
}

static void *vfs_dl_open(sqlite3_vfs *vfs, const char *name) {
    return of(vfs)->system->xDlOpen(of(vfs)->system, name);
}

static void vfs_dl_error(sqlite3_vfs *vfs, int size, char *text) {
    of(vfs)->system->xDlError(of(vfs)->system, size, text);
}

static void (*vfs_dl_sym(sqlite3_vfs *vfs, void *library, const char *symbol))(void) {
    return of(vfs)->system->xDlSym(of(vfs)->system, library, symbol);
}

static void vfs_dl_close(sqlite3_vfs *vfs, void *library) {
    of(vfs)->system->xDlClose(of(vfs)->system, library);
}

static int vfs_randomness(sqlite3_vfs *vfs, int count, char *bytes) {
    return of(vfs)->system->xRandomness(of(vfs)->system, count, bytes);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds) {
    return of(vfs)->system->xSleep(of(vfs)->system, microseconds);
}

static int vfs_time(sqlite3_vfs *vfs, double *julian) {
    return of(vfs)->system->xCurrentTime(of(vfs)->system, julian);
}

static int vfs_time_ms(sqlite3_vfs *vfs, sqlite3_int64 *julian_ms) {
    return of(vfs)->system->xCurrentTimeInt64(of(vfs)->system, julian_ms);
}

static int vfs_last_error(sqlite3_vfs *vfs, int size, char *text) {
    (void)vfs;
    sqlite3_snprintf(size, text, "%s", vfscale_error());
    return 0;
}

static int register_vfs(const char *name, struct vfscale_task *task) {
    struct registered *it = calloc(1, sizeof *it);
    sqlite3_vfs *system = sqlite3_vfs_find(NULL);
    char *own = it == NULL ? NULL : strdup(name);
    size_t room = sizeof(struct file);

    if (it != NULL && task != NULL)
        it->tree = calloc(1, sizeof *it->tree);
    if (own == NULL || system == NULL || (task != NULL && it->tree == NULL)) {
        free(own);
        free(it);
        return SQLITE_NOMEM;
    }
    if (task != NULL)
        it->tree->task = task;
    it->system = system;
    it->vfs = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = (int)room > system->szOsFile ? (int)room : system->szOsFile,
        .mxPathname = 4400,
        .zName = own,
        .pAppData = it,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xDlOpen = vfs_dl_open,
        .xDlError = vfs_dl_error,
        .xDlSym = vfs_dl_sym,
        .xDlClose = vfs_dl_close,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_time_ms,
    };
    return sqlite3_vfs_register(&it->vfs, 0);
}

int vfscale_sqlite_register(const char *name) {
    return sqlite3_vfs_find(name) != NULL ? SQLITE_OK : register_vfs(name, NULL);
}

int vfscale_sqlite_register_task(const char *name, struct vfscale_task *task) {
    return register_vfs(name, task);
}

int vfscale_sqlite_unregister(const char *name) {
    sqlite3_vfs *vfs = sqlite3_vfs_find(name);
    struct registered *it;
    int result;

    if (vfs == NULL || vfs->xOpen != vfs_open)
        return SQLITE_NOTFOUND;
    it = of(vfs);
    result = sqlite3_vfs_unregister(vfs);
    if (result == SQLITE_OK) {
        free((char *)it->vfs.zName);
        free(it->tree);
        free(it);
    }
    return result;
}

/* The SQL function vfscale_fork(IMAGE, PARENT, CHILD). */
static void sql_fork(sqlite3_context *context, int count, sqlite3_value **values) {
    const char *text[3];
    int i;

    (void)count;
    for (i = 0; i < 3; i++)
        if ((text[i] = (const char *)sqlite3_value_text(values[i])) == NULL)
            return sqlite3_result_error(context, "vfscale_fork(IMAGE, PARENT, CHILD)", -1);
    if (vfscale_sqlite_fork(text[0], text[1], text[2]) != SQLITE_OK)
        return sqlite3_result_error(context, vfscale_error(), -1);
    sqlite3_result_text(context, text[2], -1, SQLITE_TRANSIENT);
}

int vfscale_sqlite_functions(sqlite3 *db) {
    return sqlite3_create_function(db, "vfscale_fork", 3, SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL,
                                   sql_fork, NULL, NULL);
}

#ifndef SQLITE_CORE
static int add_functions(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    (void)error;
    (void)api;
    return vfscale_sqlite_functions(db);
}

/** Called by `.load vfscale`: registers the VFS `vfscale` for images, and the function for this and
 * all later connections. */
int sqlite3_vfscale_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

int sqlite3_vfscale_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    int result;

    (void)error;
    SQLITE_EXTENSION_INIT2(api);
    result = vfscale_sqlite_register("vfscale");
    if (result == SQLITE_OK)
        result = sqlite3_auto_extension((void (*)(void))add_functions);
    if (result == SQLITE_OK)
        result = vfscale_sqlite_functions(db);
    return result == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : result;
}
#endif
