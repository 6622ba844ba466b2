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
#include "super.h"

/** A registered VFS. */
struct registered {
    sqlite3_vfs vfs;
    /** The VFS that has temporary files, time and random bytes. */
    sqlite3_vfs *system;
    /** The tree of the task, or NULL for images. */
    struct tree *tree;
};

static struct registered *of(sqlite3_vfs *vfs) { return vfs->pAppData; }

/* Stores the tree of a name, with a use, and the path in it. */
static int find(sqlite3_vfs *vfs, const char *name, enum super_use use, struct tree **tree,
                const char **path) {
    struct tree *other;

    if (of(vfs)->tree == NULL && (other = super_tree(name, use)) != NULL) {
        *tree = other;
        *path = strchr(name + place_length(name), '/');
        return tree_again(other);
    }
    /* Names in this tree are absolute; another one was read from a super-journal. */
    if (of(vfs)->tree != NULL && *name != '/')
        name += place_length(name) + 1;
    return tree_get(of(vfs)->tree, name, tree, path);
}

/* Finds the database of a new journal or WAL, whose permissions it gets. */
static int has_database(struct tree *tree, const char *path, int flags, struct vfscale_stat *st) {
    const char *end = strrchr(path, '-');
    char *database;
    int result;

    if (!(flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)) ||
        !(flags & SQLITE_OPEN_CREATE) || end == NULL)
        return 0;
    database = strndup(path, (size_t)(end - path));
    result = database == NULL ? -ENOMEM : vfscale_stat(tree->task, database, st);
    free(database);
    return result == 0;
}

/* Gives a new file the owner and the permissions of a database, as far as the task may do that. */
static void give_permissions(struct tree *tree, int fd, const struct vfscale_stat *database) {
    struct vfscale_stat st;

    if (vfscale_fstat(tree->task, fd, &st) < 0 || st.st_size != 0)
        return;
    if (st.st_uid != database->st_uid || st.st_gid != database->st_gid)
        vfscale_fchown(tree->task, fd, database->st_uid, database->st_gid);
    if (st.st_mode != database->st_mode)
        vfscale_fchmod(tree->task, fd, database->st_mode & 0777);
}

/* Opens a file in a tree, for reading only if it can't be written. */
static int open_in(struct tree *tree, const char *path, int flags, int *opened_with) {
    int how = flags & SQLITE_OPEN_READWRITE ? O_RDWR : O_RDONLY, fd;
    struct vfscale_stat st;
    int has_one = has_database(tree, path, flags, &st);

    how |= flags & SQLITE_OPEN_CREATE ? O_CREAT : 0;
    how |= flags & SQLITE_OPEN_EXCLUSIVE ? O_EXCL | O_NOFOLLOW : 0;
    fd = vfscale_open(tree->task, path, how | O_CLOEXEC, has_one ? st.st_mode & 0777 : 0644);
    if (fd >= 0 && has_one)
        give_permissions(tree, fd, &st);
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
    int is_super = (flags & (SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_CREATE)) ==
                   SQLITE_OPEN_SUPER_JOURNAL;
    int result, fd, opened_with;

    if (name == NULL)
        return of(vfs)->system->xOpen(of(vfs)->system, name, sqlite, flags, out_flags);
    memset(file, 0, sizeof *file);
    result = find(vfs, name, is_super ? SUPER_OPENED : SUPER_OTHER, &file->tree, &path);
    if (result != SQLITE_OK)
        return result;
    fd = open_in(file->tree, path, flags, &opened_with);
    if (fd < 0) {
        sqlite3_log(SQLITE_CANTOPEN, "%s", vfscale_error());
        tree_put(file->tree);
        if (is_super)
            super_closed(path);
        return fd == -EISDIR ? SQLITE_CANTOPEN_ISDIR : SQLITE_CANTOPEN;
    }
    if (flags & SQLITE_OPEN_DELETEONCLOSE)
        vfscale_unlink(file->tree->task, path);
    file->fd = fd;
    file->path = path;
    file->flags = flags;
    file->is_powersafe = sqlite3_uri_boolean(
        flags & SQLITE_OPEN_MAIN_DB ? name : NULL, "psow", 1);
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
    int result = find(vfs, name, SUPER_DELETED, &tree, &path), removed;

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
    int result = find(vfs, name, SUPER_ASKED, &tree, &path);

    if (result != SQLITE_OK)
        return result;
    if (want == SQLITE_ACCESS_EXISTS)
        /* An empty file is as good as none: a journal that was cut off. */
        *may = vfscale_stat(tree->task, path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > 0);
    else
        *may = vfscale_access(tree->task, path, R_OK | W_OK) == 0;
    return tree_put(tree);
}

/** A path that becomes absolute, and free of symbolic links, name by name. */
struct resolved {
    struct vfscale_task *task;
    char *full;
    size_t size, length;
    int links;
};

static int add_names(struct resolved *it, const char *path);

static int add_name(struct resolved *it, const char *name, size_t length) {
    char target[4096];
    ssize_t got;

    if (it->length + length + 2 > it->size)
        return SQLITE_CANTOPEN;
    it->full[it->length] = '/';
    memcpy(it->full + it->length + 1, name, length);
    it->full[it->length + 1 + length] = 0;
    got = vfscale_readlink(it->task, it->full, target, sizeof target - 1);
    if (got < 0) {
        it->length += length + 1;
        return SQLITE_OK;
    }
    if (++it->links > 40)
        return SQLITE_CANTOPEN;
    target[got] = 0;
    return add_names(it, target);
}

static int add_names(struct resolved *it, const char *path) {
    size_t length;
    int result = SQLITE_OK;

    if (*path == '/')
        it->length = 0;
    for (path += strspn(path, "/"); *path != 0 && result == SQLITE_OK;
         path += strspn(path, "/")) {
        length = strcspn(path, "/");
        if (length == 2 && memcmp(path, "..", 2) == 0)
            while (it->length > 0 && it->full[--it->length] != '/')
                ;
        else if (length > 1 || *path != '.')
            result = add_name(it, path, length);
        path += length;
    }
    return result;
}

/* Writes the absolute path of a file without symbolic links: a database has one journal, by
 * whichever name it is opened. */
static int resolve(struct vfscale_task *task, const char *path, int size, char *full) {
    struct resolved it = {.task = task, .full = full, .size = (size_t)size};
    ssize_t length = *path == '/' ? 0 : vfscale_getcwd(task, full, (size_t)size);
    int result;

    if (length < 0)
        return SQLITE_CANTOPEN;
    it.length = length > 1 ? (size_t)length : 0;
    result = add_names(&it, path);
    if (result != SQLITE_OK)
        return result;
    if (it.length == 0)
        full[it.length++] = '/';
    full[it.length] = 0;
    return it.links > 0 ? SQLITE_OK_SYMLINK : SQLITE_OK;
}

/* Makes the path of the image absolute, since the working directory of the process may change, and
 * that in the image. */
static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int size, char *full) {
    size_t length = place_length(name), image = length, at;
    char *path, *real;
    const char *inside;
    struct tree *tree;
    int result, closed;

    if (of(vfs)->tree != NULL)
        return resolve(of(vfs)->tree->task, name, size, full);
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
    if (at + 1 >= (size_t)size)
        return SQLITE_CANTOPEN;
    result = tree_get(NULL, full, &tree, &inside);
    if (result != SQLITE_OK)
        return result;
    at = place_length(full) + 1;
    result = resolve(tree->task, name + length + 1, size - (int)at, full + at);
    closed = tree_put(tree);
    return closed != SQLITE_OK ? closed : result;
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
        .mxPathname = SUPER_NAME_MAX,
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
